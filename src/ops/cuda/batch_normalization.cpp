// Batch normalisation by kernels of our own: cuDNN's may not lie over X or dY, and saves no variance, of
// which the running one is made.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/normalization.h"
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

// Of several ranks' batch.
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

// Of one rank's.
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

// Of the own batch, by writes 1 and 2.
void launch_statistics(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                       const GroupSumsLayout& layout) {
  launch_group_sums(launcher, geometry, operands.reads[0], layout);
  launcher.launch(BatchStatistics{.sums = layout.group_sums,
                                  .count = geometry.group_elements(),
                                  .mean = write_pointer<float>(operands, 1),
                                  .variance = write_pointer<float>(operands, 2),
                                  .elements = geometry.groups});
}

OpKernel training_kernel(const Geometry& geometry, double epsilon) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const ForwardLayout layout(workspace, geometry);
    auto* const mean = write_pointer<float>(operands, 1);
    auto* const variance = write_pointer<float>(operands, 2);
    launch_statistics(launcher, geometry, operands, layout.sums);
    launch_deviations(launcher, variance, epsilon, geometry.groups, layout.reciprocal_deviation);
    launch_normalize(launcher, geometry, operands,
                     {.mean = mean, .reciprocal_deviation = layout.reciprocal_deviation});
  };
}

OpKernel inference_kernel(const Geometry& geometry, double epsilon) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const InferenceLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, 4), epsilon, geometry.groups,
                      layout.reciprocal_deviation);
    launch_normalize(
        launcher, geometry, operands,
        {.mean = read_pointer<float>(operands, 3), .reciprocal_deviation = layout.reciprocal_deviation});
  };
}

OpKernel statistics_kernel(const Geometry& geometry, double ranks) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const GroupSumsLayout layout(workspace, geometry);
    launch_statistics(launcher, geometry, operands, layout);
    launcher.launch(MeanShare{.own_mean = write_pointer<float>(operands, 1),
                              .ranks = ranks,
                              .share = write_pointer<float>(operands, 0),
                              .elements = geometry.groups});
  };
}

OpKernel variance_kernel(const Geometry& geometry, double ranks) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(VarianceShare{.mean = read_pointer<float>(operands, 0),
                                  .own_mean = read_pointer<float>(operands, 1),
                                  .own_variance = read_pointer<float>(operands, 2),
                                  .ranks = ranks,
                                  .share = write_pointer<float>(operands, 0),
                                  .elements = geometry.groups});
  };
}

OpKernel sums_kernel(const Geometry& geometry, double epsilon, double ranks) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const SumsLayout layout(workspace, geometry);
    auto* const scale_gradient = write_pointer<float>(operands, 1);
    auto* const shift_gradient = write_pointer<float>(operands, 2);
    launch_deviations(launcher, read_pointer<float>(operands, 2), epsilon, geometry.groups,
                      layout.reciprocal_deviation);
    launch_scale_and_shift_gradients(
        launcher, geometry, operands,
        {.mean = read_pointer<float>(operands, 1), .reciprocal_deviation = layout.reciprocal_deviation},
        scale_gradient, shift_gradient, layout.sums);
    launcher.launch(GradientMeans{.scale_gradient = scale_gradient,
                                  .shift_gradient = shift_gradient,
                                  .count = geometry.group_elements() * ranks,
                                  .means = write_pointer<float>(operands, 0),
                                  .elements = geometry.groups});
  };
}

OpKernel gradient_kernel(const Geometry& geometry, double epsilon) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const GradientLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, 2), epsilon, geometry.groups,
                      layout.reciprocal_deviation);
    launcher.launch(MeanCoefficients{.means = read_pointer<float>(operands, 5),
                                     .scale = read_pointer<float>(operands, 4),
                                     .reciprocal_deviation = layout.reciprocal_deviation,
                                     .of_x = layout.of_x,
                                     .constant = layout.constant,
                                     .elements = geometry.groups});
    launch_input_gradient(
        launcher, geometry, operands,
        {.mean = read_pointer<float>(operands, 1), .reciprocal_deviation = layout.reciprocal_deviation},
        {.of_x = layout.of_x, .constant = layout.constant});
  };
}

// Over as many ranks' batches.
OpKernel follow_kernel(const Geometry& geometry, float momentum, double ranks) {
  const double elements = geometry.group_elements() * ranks;
  // The variance is over n, what is kept is over n - 1.
  const auto unbiased = static_cast<float>(elements / (elements - 1));
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    for (std::size_t statistic = 0; statistic < 2; ++statistic) {
      launcher.launch(FollowStatistic{.batch = read_pointer<float>(operands, statistic),
                                      .running = read_pointer<float>(operands, 2 + statistic),
                                      .moved = write_pointer<float>(operands, statistic),
                                      .momentum = momentum,
                                      .factor = statistic == 0 ? 1.0F : unbiased,
                                      .elements = geometry.groups});
    }
  };
}

OpKernel backward_kernel(const Geometry& geometry, double epsilon) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const BackwardLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, 2), epsilon, geometry.groups,
                      layout.reciprocal_deviation);
    launch_gradients(
        launcher, geometry, operands,
        {.mean = read_pointer<float>(operands, 1), .reciprocal_deviation = layout.reciprocal_deviation},
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
  // Checked before anything is counted.
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
  // Inference makes no statistics.
  return request.op.writes.size() > 1 ? training_kernel(geometry, epsilon)
                                      : inference_kernel(geometry, epsilon);
}

}  // namespace vdnn::cuda
