// Mean squared error.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/sums.h"
#include "src/ops/standard_losses.h"

namespace vdnn::cuda {

LayerRecipe make_recipe(const MeanSquaredErrorSpec& spec, const LayerTypes& types, Mode mode) {
  ops::require_fp32_channels_last(types.inputs, "mean squared error");
  const std::uint64_t elements = types.inputs.empty() ? 0 : types.inputs[0].elements();
  return ops::standard_recipe(
      spec, types, mode,
      {.forward = own_algorithm(workspace_bytes<RowSumsLayout<1>>(std::uint64_t{1}, elements)),
       .backward = own_algorithm()});
}

OpKernel make_kernel(const MeanSquaredErrorSpec& spec, const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_inputs[0].elements();
  if (request.op.direction == Direction::kForward) {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      Workspace workspace(operands.workspace.begin);
      const RowSumsLayout<1> sums(workspace, 1, elements);
      launch_row_sums(
          launcher,
          SquaredDifference{.x = read_pointer<float>(operands, 0), .t = read_pointer<float>(operands, 1)},
          sums);
      launcher.launch(StoreSquaredError{.sum = sums.sums,
                                        .count = static_cast<double>(elements),
                                        .metrics = write_pointer<float>(operands, 0)});
    };
  }
  const auto factor =
      static_cast<float>(2 * static_cast<double>(spec.weight) / static_cast<double>(elements));
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(ScaledDifference{.x = read_pointer<float>(operands, 0),
                                     .t = read_pointer<float>(operands, 1),
                                     .dx = write_pointer<float>(operands, 0),
                                     .factor = factor,
                                     .elements = elements});
  };
}

}  // namespace vdnn::cuda
