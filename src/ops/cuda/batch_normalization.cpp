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

OpKernel training_kernel(const Geometry& geometry, double epsilon) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    ForwardLayout layout(workspace, geometry);
    auto* const mean = write_pointer<float>(operands, 1);
    auto* const variance = write_pointer<float>(operands, 2);
    launch_group_sums(launcher, geometry, read_pointer<float>(operands, 0), layout.sums);
    launcher.launch(BatchStatistics{.sums = layout.sums.group_sums,
                                    .count = geometry.group_elements(),
                                    .mean = mean,
                                    .variance = variance,
                                    .elements = geometry.groups});
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

OpKernel follow_kernel(const Geometry& geometry, float momentum) {
  const double elements = geometry.group_elements();
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
    BackwardLayout layout(workspace, geometry);
    launch_deviations(launcher, read_pointer<float>(operands, 2), epsilon, geometry.groups,
                      layout.reciprocal_deviation);
    launch_gradients(
        launcher, geometry, operands,
        {.mean = read_pointer<float>(operands, 1), .reciprocal_deviation = layout.reciprocal_deviation},
        layout.gradients);
  };
}

}  // namespace

LayerRecipe make_recipe(const BatchNormalizationSpec& spec, const LayerTypes& types, Mode mode) {
  // Checked before anything is counted.
  LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {.follow = own_algorithm()});
  const Geometry geometry = geometry_of(types.inputs[0]);
  if (mode == Mode::kInference) {
    recipe.forward[0].algorithms = own_algorithm(workspace_bytes<InferenceLayout>(geometry));
  } else {
    recipe.forward[0].algorithms = own_algorithm(workspace_bytes<ForwardLayout>(geometry));
    recipe.backward[0].algorithms = own_algorithm(workspace_bytes<BackwardLayout>(geometry));
  }
  return recipe;
}

OpKernel make_kernel(const BatchNormalizationSpec& spec, const KernelRequest& request) {
  const Geometry geometry = geometry_of(request.op.layer_inputs[0]);
  const auto epsilon = static_cast<double>(spec.epsilon);
  if (request.op.direction != Direction::kForward) {
    return backward_kernel(geometry, epsilon);
  }
  if (request.op.position == 1) {
    return follow_kernel(geometry, spec.momentum);
  }
  // Inference makes no statistics.
  return request.op.writes.size() > 1 ? training_kernel(geometry, epsilon)
                                      : inference_kernel(geometry, epsilon);
}

}  // namespace vdnn::cuda
