// Dynamic loss scaling: multiplies gradient maps of losses by the scale, and computes the scale of the next
// step.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

LayerRecipe make_recipe(const GradientScalingSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {.forward = own_algorithm(), .backward = {}});
}

OpKernel make_kernel(const GradientScalingSpec&, const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_outputs[0].elements();
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(ScaledGradientMap{.gradient = read_pointer<float>(operands, 0),
                                      .scale = read_pointer<LossScale>(operands, 1),
                                      .scaled = write_pointer<float>(operands, 0),
                                      .elements = elements});
  };
}

LayerRecipe make_recipe(const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {.forward = own_algorithm(), .backward = {}});
}

OpKernel make_kernel(const LossScaleUpdateSpec& spec, const KernelRequest&) {
  return [scaling = spec.scaling](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(LossScaleUpdate{.scaling = scaling,
                                    .scale = read_pointer<LossScale>(operands, 0),
                                    .norm = read_pointer<LossScaledNorm>(operands, 1),
                                    .updated = write_pointer<LossScale>(operands, 0)});
  };
}

}  // namespace vdnn::cuda
