// Optimizers (momentum SGD, Adam and AdamW) and gradient accumulation over a parameter as it is stored.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/step_numbers.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cuda {

namespace {

std::uint64_t stored_elements(const KernelRequest& request) {
  return request.tape.value(request.op.reads[0]).bytes / sizeof(float);
}

// The gradients' norm and scale, where there is a read behind parameter, gradient and states.
const float* norm_of(const OpOperands& operands, std::size_t unclipped_reads) {
  return operands.reads.size() > unclipped_reads ? read_pointer<float>(operands, unclipped_reads) : nullptr;
}

}  // namespace

UpdateRecipe make_update_recipe(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped) {
  return ops::standard_update(spec, parameter, clipped, own_algorithm());
}

OpKernel make_kernel(const SgdSpec& spec, const KernelRequest& request) {
  const std::uint64_t elements = stored_elements(request);
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(Sgd{.w = read_pointer<float>(operands, 0),
                        .g = read_pointer<float>(operands, 1),
                        .m = read_pointer<float>(operands, 2),
                        .norm = norm_of(operands, 3),
                        .new_w = write_pointer<float>(operands, 0),
                        .new_m = write_pointer<float>(operands, 1),
                        .spec = spec,
                        .scalars = per_step(operands, &StepNumbers::scalars, scalars),
                        .elements = elements});
  };
}

UpdateRecipe make_update_recipe(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped) {
  return ops::standard_update(spec, parameter, clipped, own_algorithm());
}

OpKernel make_kernel(const AdamSpec& spec, const KernelRequest& request) {
  const std::uint64_t elements = stored_elements(request);
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(
        Adam{.w = read_pointer<float>(operands, 0),
             .g = read_pointer<float>(operands, 1),
             .m = read_pointer<float>(operands, 2),
             .v = read_pointer<float>(operands, 3),
             .norm = norm_of(operands, 4),
             .new_w = write_pointer<float>(operands, 0),
             .new_m = write_pointer<float>(operands, 1),
             .new_v = write_pointer<float>(operands, 2),
             .coefficients = per_step(operands, &StepNumbers::adam, ops::AdamCoefficients(spec, scalars)),
             .elements = elements});
  };
}

OpRecipe make_gradient_sum_recipe(const ParameterRecipe& parameter) {
  return ops::standard_gradient_sum(parameter, own_algorithm());
}

OpKernel make_kernel(const GradientSumSpec&, const KernelRequest& request) {
  const std::uint64_t elements = stored_elements(request);
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(GradientSum{.gradient = read_pointer<float>(operands, 0),
                                .sum = read_pointer<float>(operands, 1),
                                .new_sum = write_pointer<float>(operands, 0),
                                .scalars = per_step(operands, &StepNumbers::scalars, scalars),
                                .elements = elements});
  };
}

}  // namespace vdnn::cuda
