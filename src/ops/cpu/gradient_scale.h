#pragma once
// What an update multiplies its gradient by: 1, or what the norm of all gradients, the last operand that it
// reads, gives.

#include <optional>

#include "src/ops/cpu/kernel.h"
#include "src/ops/operand_pointers.h"

namespace vdnn::cpu {

struct GradientScale {
  float scale = 1;
  bool skips = false;               // gradients have overflowed: nothing is updated
  std::uint64_t skipped_steps = 0;  // before this one, which the optimizer does not count
};

class GradientScaling {
 public:
  // Of an update with so many states.
  GradientScaling(const KernelRequest& request, std::size_t states) {
    const std::size_t norm = 2 + states;  // after the parameter, its gradient and the states
    if (request.op.reads.size() > norm) {
      norm_ = norm;
      loss_scaled_ = request.tape.value(request.op.reads[norm]).bytes == sizeof(LossScaledNorm);
    }
  }

  GradientScale of(const OpOperands& operands) const {
    if (!norm_) {
      return {};
    }
    if (!loss_scaled_) {
      return {.scale = ops::read_pointer<float>(operands, *norm_)[1]};
    }
    const auto& norm = *ops::read_pointer<LossScaledNorm>(operands, *norm_);
    return {.scale = norm.scale,
            .skips = norm.skips != 0,
            .skipped_steps = static_cast<std::uint64_t>(norm.skipped_steps)};
  }

 private:
  std::optional<std::size_t> norm_;  // the operand
  bool loss_scaled_ = false;
};

}  // namespace vdnn::cpu
