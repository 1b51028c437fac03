// Batch normalisation by our own kernels. cuDNN's kernels cannot overwrite X or dY. They do not save the
// variance, from which the running variance is computed.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/normalization.h"
#include "src/ops/layer_operands.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

Geometry geometry_of(const TensorType& type) {
  const MapShape map = one_sample(type);
  return {map, map.channels};
}

struct ForwardLayout {
  GroupSumsLayout sums;
  float* reciprocal_deviation;

  ForwardLayout(Workspace& workspace, const Geometry& geometry)
      : sums(workspace, geometry), reciprocal_deviation(workspace.take<float>(geometry.groups)) {}
};

// Layouts of the workspace for batches of several ranks.
struct SumsLayout {
  ChannelSumsLayout sums;
  float* reciprocal_deviation;

  SumsLayout(Workspace& workspace, const Geometry& geometry)
      : sums(workspace, geometry), reciprocal_deviation(workspace.take<float>(geometry.groups)) {}
};

struct GradientLayout {
  float* of_x;
  float* constant;
  float* reciprocal_deviation;

  GradientLayout(Workspace& workspace, const Geometry& geometry)
      : of_x(workspace.take<float>(geometry.groups)),
        constant(workspace.take<float>(geometry.groups)),
        reciprocal_deviation(workspace.take<float>(geometry.groups)) {}
};

// Layouts of the workspace for the batch of one rank.
struct InferenceLayout {
  float* reciprocal_deviation;

  InferenceLayout(Workspace& workspace, const Geometry& geometry)
      : reciprocal_deviation(workspace.take<float>(geometry.groups)) {}
};

struct BackwardLayout {
  GradientsLayout gradients;
  float* reciprocal_deviation;

  BackwardLayout(Workspace& workspace, const Geometry& geometry)
      : gradients(workspace, geometry), reciprocal_deviation(workspace.take<float>(geometry.groups)) {}
};

void launch_deviations(const Launcher& launcher, const float* variance, double epsilon,
                       std::uint64_t channels, float* reciprocal_deviation) {
  launcher.launch(ReciprocalDeviations{.variance = variance,
                                       .epsilon = epsilon,
                                       .reciprocal_deviation = reciprocal_deviation,
                                       .elements = channels});
}

// Statistics of this rank's batch.
struct Statistics {
  float* mean;
  float* variance;
};

void launch_statistics(const Launcher& launcher, const Geometry& geometry, const AddressRange& x,
                       const GroupSumsLayout& layout, const Statistics& statistics) {
  launch_group_sums(launcher, geometry, x, layout);
  launcher.launch(BatchStatistics{.sums = layout.group_sums,
                                  .count = geometry.group_elements(),
                                  .mean = statistics.mean,
                                  .variance = statistics.variance,
                                  .elements = geometry.groups});
}

OpKernel training_kernel(const Geometry& geometry, double epsilon) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const ForwardLayout layout(workspace, geometry);
    const Statistics statistics{.mean = write_pointer<float>(operands, kForward.write(kMean)),
                                .variance = write_pointer<float>(operands, kForward.write(kVariance))};
    launch_statistics(launcher, geometry, operands.reads[kForward.read(kX)], layout.sums, statistics);
    launch_deviations(launcher, statistics.variance, epsilon, geometry.groups, layout.reciprocal_deviation);
    launch_normalize(launcher, geometry, operands,
                     {.mean = statistics.mean, .reciprocal_deviation = layout.reciprocal_deviation});
  };
}

// Normalises with given statistics: kInference with the running statistics, kNormalize (batches of several
// ranks) with the statistics of all ranks' batches. Both ops have their operands in the same order.
OpKernel inference_kernel(const Geometry& geometry, double epsilon) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const InferenceLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, kInference.read(kRunningVariance)), epsilon,
                      geometry.groups, layout.reciprocal_deviation);
    launch_normalize(launcher, geometry, operands,
                     {.mean = read_pointer<float>(operands, kInference.read(kRunningMean)),
                      .reciprocal_deviation = layout.reciprocal_deviation});
  };
}

OpKernel statistics_kernel(const Geometry& geometry, double ranks) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const GroupSumsLayout layout(workspace, geometry);
    const Statistics own{.mean = write_pointer<float>(operands, kStatistics.write(kOwnMean)),
                         .variance = write_pointer<float>(operands, kStatistics.write(kOwnVariance))};
    launch_statistics(launcher, geometry, operands.reads[kStatistics.read(kX)], layout, own);
    launcher.launch(MeanShare{.own_mean = own.mean,
                              .ranks = ranks,
                              .share = write_pointer<float>(operands, kStatistics.write(kMean)),
                              .elements = geometry.groups});
  };
}

OpKernel variance_kernel(const Geometry& geometry, double ranks) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(
        VarianceShare{.mean = read_pointer<float>(operands, kVarianceShare.read(kMean)),
                      .own_mean = read_pointer<float>(operands, kVarianceShare.read(kOwnMean)),
                      .own_variance = read_pointer<float>(operands, kVarianceShare.read(kOwnVariance)),
                      .ranks = ranks,
                      .share = write_pointer<float>(operands, kVarianceShare.write(kVariance)),
                      .elements = geometry.groups});
  };
}

OpKernel sums_kernel(const Geometry& geometry, double epsilon, double ranks) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const SumsLayout layout(workspace, geometry);
    auto* const scale_gradient = write_pointer<float>(operands, kSums.write(kDScale));
    auto* const shift_gradient = write_pointer<float>(operands, kSums.write(kDShift));
    launch_deviations(launcher, read_pointer<float>(operands, kSums.read(kVariance)), epsilon,
                      geometry.groups, layout.reciprocal_deviation);
    launch_scale_and_shift_gradients(launcher, geometry, operands,
                                     {.mean = read_pointer<float>(operands, kSums.read(kMean)),
                                      .reciprocal_deviation = layout.reciprocal_deviation},
                                     scale_gradient, shift_gradient, layout.sums);
    launcher.launch(GradientMeans{.scale_gradient = scale_gradient,
                                  .shift_gradient = shift_gradient,
                                  .count = geometry.group_elements() * ranks,
                                  .means = write_pointer<float>(operands, kSums.write(kGradientMeans)),
                                  .elements = geometry.groups});
  };
}

OpKernel gradient_kernel(const Geometry& geometry, double epsilon) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const GradientLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, kGradient.read(kVariance)), epsilon,
                      geometry.groups, layout.reciprocal_deviation);
    launcher.launch(MeanCoefficients{.means = read_pointer<float>(operands, kGradient.read(kGradientMeans)),
                                     .scale = read_pointer<float>(operands, kGradient.read(kScale)),
                                     .reciprocal_deviation = layout.reciprocal_deviation,
                                     .of_x = layout.of_x,
                                     .constant = layout.constant,
                                     .elements = geometry.groups});
    launch_input_gradient(launcher, geometry, operands,
                          {.mean = read_pointer<float>(operands, kGradient.read(kMean)),
                           .reciprocal_deviation = layout.reciprocal_deviation},
                          {.of_x = layout.of_x, .constant = layout.constant});
  };
}

// Moves the running statistics towards those of the batches of `ranks` ranks.
OpKernel follow_kernel(const Geometry& geometry, float momentum, double ranks) {
  using namespace ops::normalization;
  const double elements = geometry.group_elements() * ranks;
  // The batch's variance is divided by n, the running variance by n - 1.
  const auto unbiased = static_cast<float>(elements / (elements - 1));
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(FollowStatistic{.batch = read_pointer<float>(operands, kFollow.read(kMean)),
                                    .running = read_pointer<float>(operands, kFollow.read(kRunningMean)),
                                    .moved = write_pointer<float>(operands, kFollow.write(kRunningMean)),
                                    .momentum = momentum,
                                    .factor = 1.0F,
                                    .elements = geometry.groups});
    launcher.launch(FollowStatistic{.batch = read_pointer<float>(operands, kFollow.read(kVariance)),
                                    .running = read_pointer<float>(operands, kFollow.read(kRunningVariance)),
                                    .moved = write_pointer<float>(operands, kFollow.write(kRunningVariance)),
                                    .momentum = momentum,
                                    .factor = unbiased,
                                    .elements = geometry.groups});
  };
}

OpKernel backward_kernel(const Geometry& geometry, double epsilon) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const BackwardLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, kBackward.read(kVariance)), epsilon,
                      geometry.groups, layout.reciprocal_deviation);
    launch_gradients(launcher, geometry, operands,
                     {.mean = read_pointer<float>(operands, kBackward.read(kMean)),
                      .reciprocal_deviation = layout.reciprocal_deviation},
                     layout.gradients);
  };
}

OpKernel synchronized_kernel(const BatchNormalizationSpec& spec, const Op& op) {
  namespace position = ops::synchronized;
  const Geometry geometry = geometry_of(op.layer_inputs[0]);
  const auto epsilon = static_cast<double>(spec.epsilon);
  const auto ranks = static_cast<double>(spec.ranks);
  if (op.phase != Phase::kForward) {
    if (op.position == position::kSums) {
      return sums_kernel(geometry, epsilon, ranks);
    }
    return gradient_kernel(geometry, epsilon);
  }
  switch (op.position) {
    case position::kStatistics:
      return statistics_kernel(geometry, ranks);
    case position::kVariance:
      return variance_kernel(geometry, ranks);
    case position::kNormalise:
      return inference_kernel(geometry, epsilon);
    default:
      return follow_kernel(geometry, spec.momentum, ranks);
  }
}

void set_synchronized_algorithms(LayerRecipe& recipe, const Geometry& geometry) {
  namespace position = ops::synchronized;
  recipe.forward[position::kStatistics].algorithms =
      own_algorithm(workspace_bytes<GroupSumsLayout>(geometry));
  recipe.forward[position::kVariance].algorithms = own_algorithm();
  recipe.forward[position::kNormalise].algorithms = own_algorithm(workspace_bytes<InferenceLayout>(geometry));
  recipe.backward[position::kSums].algorithms = own_algorithm(workspace_bytes<SumsLayout>(geometry));
  recipe.backward[position::kGradient].algorithms = own_algorithm(workspace_bytes<GradientLayout>(geometry));
}

}  // namespace

LayerRecipe make_recipe(const BatchNormalizationSpec& spec, const LayerTypes& types, Mode mode) {
  // The types are checked before workspaces are computed.
  LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {.follow = own_algorithm()});
  const Geometry geometry = geometry_of(types.inputs[0]);
  if (mode == Mode::kInference) {
    recipe.forward[0].algorithms = own_algorithm(workspace_bytes<InferenceLayout>(geometry));
  } else if (spec.ranks > 1) {
    set_synchronized_algorithms(recipe, geometry);
  } else {
    recipe.forward[0].algorithms = own_algorithm(workspace_bytes<ForwardLayout>(geometry));
    recipe.backward[0].algorithms = own_algorithm(workspace_bytes<BackwardLayout>(geometry));
  }
  return recipe;
}

OpKernel make_kernel(const BatchNormalizationSpec& spec, const KernelRequest& request) {
  if (spec.ranks > 1) {
    return synchronized_kernel(spec, request.op);
  }
  const Geometry geometry = geometry_of(request.op.layer_inputs[0]);
  const auto epsilon = static_cast<double>(spec.epsilon);
  if (request.op.direction != Direction::kForward) {
    return backward_kernel(geometry, epsilon);
  }
  if (request.op.position == 1) {
    return follow_kernel(geometry, spec.momentum, 1);
  }
  // Inference writes no statistics.
  return request.op.writes.size() > 1 ? training_kernel(geometry, epsilon)
                                      : inference_kernel(geometry, epsilon);
}

}  // namespace vdnn::cuda
