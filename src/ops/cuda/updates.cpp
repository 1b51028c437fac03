// Optimizers (momentum SGD, Adam and AdamW) and gradient accumulation, on parameters and gradients in their
// storage layout.

#include <optional>

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/step_numbers.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cuda {

namespace {

std::uint64_t stored_elements(const KernelRequest& request) {
  return request.tape.value(request.op.reads[0]).bytes / sizeof(float);
}

// The optional operands of an update, in addition to parameter, gradient and states: a read for the scale of
// the gradient, and a write for the parameter's copy.
class Additions {
 public:
  Additions(const KernelRequest& request, std::size_t states) : norm_(2 + states), copy_(1 + states) {
    const Op& op = request.op;
    clipped_ = op.reads.size() > norm_;
    loss_scaled_ = clipped_ && request.tape.value(op.reads[norm_]).bytes == sizeof(LossScaledNorm);
    if (op.writes.size() > copy_) {
      copy_type_ = request.tape.value(op.writes[copy_]).type.data_type;
    }
  }

  GradientScale scale(const OpOperands& operands) const {
    if (!clipped_) {
      return {};
    }
    return loss_scaled_ ? GradientScale{.loss_scaled = read_pointer<LossScaledNorm>(operands, norm_)}
                        : GradientScale{.norm = read_pointer<float>(operands, norm_)};
  }
  ParameterCopy copy(const OpOperands& operands) const {
    return copy_type_
               ? ParameterCopy{.bits = write_pointer<std::uint16_t>(operands, copy_), .type = *copy_type_}
               : ParameterCopy{};
  }

 private:
  std::size_t norm_;  // index of the read that is the norm, if there is one
  std::size_t copy_;
  bool clipped_ = false;
  bool loss_scaled_ = false;
  std::optional<DataType> copy_type_;
};

}  // namespace

UpdateRecipe make_update_recipe(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped) {
  return ops::standard_update(spec, parameter, clipped, own_algorithm());
}

OpKernel make_kernel(const SgdSpec& spec, const KernelRequest& request) {
  const std::uint64_t elements = stored_elements(request);
  const Additions additions(request, 1);
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(Sgd{.w = read_pointer<float>(operands, 0),
                        .g = read_pointer<float>(operands, 1),
                        .m = read_pointer<float>(operands, 2),
                        .gradient_scale = additions.scale(operands),
                        .new_w = write_pointer<float>(operands, 0),
                        .new_m = write_pointer<float>(operands, 1),
                        .copy = additions.copy(operands),
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
  const Additions additions(request, 2);
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(
        Adam{.w = read_pointer<float>(operands, 0),
             .g = read_pointer<float>(operands, 1),
             .m = read_pointer<float>(operands, 2),
             .v = read_pointer<float>(operands, 3),
             .gradient_scale = additions.scale(operands),
             .new_w = write_pointer<float>(operands, 0),
             .new_m = write_pointer<float>(operands, 1),
             .new_v = write_pointer<float>(operands, 2),
             .copy = additions.copy(operands),
             .spec = spec,
             .scalars = per_step(operands, &StepNumbers::scalars, scalars),
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
