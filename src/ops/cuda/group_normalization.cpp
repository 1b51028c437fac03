// Group normalisation.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/normalization.h"
#include "src/ops/layer_operands.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

Geometry geometry_of(const GroupNormalizationSpec& spec, const TensorType& type) {
  return {MapShape(type), static_cast<std::uint64_t>(spec.groups)};
}

struct ForwardLayout {
  GroupSumsLayout sums;
  // The moments in inference, which does not save them.
  float* mean;
  float* reciprocal_deviation;

  ForwardLayout(Workspace& workspace, const Geometry& geometry)
      : sums(workspace, geometry),
        mean(workspace.take<float>(geometry.all_groups())),
        reciprocal_deviation(workspace.take<float>(geometry.all_groups())) {}
};

OpKernel forward_kernel(const Geometry& geometry, double epsilon) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const ForwardLayout layout(workspace, geometry);
    const bool training = operands.writes.size() > 1;
    float* const mean = training ? write_pointer<float>(operands, kForward.write(kMean)) : layout.mean;
    float* const reciprocal_deviation =
        training ? write_pointer<float>(operands, kForward.write(kReciprocalDeviation))
                 : layout.reciprocal_deviation;
    launch_group_sums(launcher, geometry, operands.reads[kForward.read(kX)], layout.sums);
    launcher.launch(GroupStatistics{.sums = layout.sums.group_sums,
                                    .count = geometry.group_elements(),
                                    .epsilon = epsilon,
                                    .mean = mean,
                                    .reciprocal_deviation = reciprocal_deviation,
                                    .elements = geometry.all_groups()});
    launch_normalize(launcher, geometry, operands,
                     {.mean = mean, .reciprocal_deviation = reciprocal_deviation});
  };
}

OpKernel backward_kernel(const Geometry& geometry) {
  using namespace ops::normalization;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const GradientsLayout layout(workspace, geometry);
    launch_gradients(
        launcher, geometry, operands,
        {.mean = read_pointer<float>(operands, kBackward.read(kMean)),
         .reciprocal_deviation = read_pointer<float>(operands, kBackward.read(kReciprocalDeviation))},
        layout);
  };
}

}  // namespace

LayerRecipe make_recipe(const GroupNormalizationSpec& spec, const LayerTypes& types, Mode mode) {
  // The types are checked before workspaces are computed.
  LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {});
  const Geometry geometry = geometry_of(spec, types.inputs[0]);
  recipe.forward[0].algorithms = own_algorithm(workspace_bytes<ForwardLayout>(geometry));
  if (mode == Mode::kTraining) {
    recipe.backward[0].algorithms = own_algorithm(workspace_bytes<GradientsLayout>(geometry));
  }
  return recipe;
}

OpKernel make_kernel(const GroupNormalizationSpec& spec, const KernelRequest& request) {
  const Geometry geometry = geometry_of(spec, request.op.layer_inputs[0]);
  return request.op.direction == Direction::kForward
             ? forward_kernel(geometry, static_cast<double>(spec.epsilon))
             : backward_kernel(geometry);
}

}  // namespace vdnn::cuda
