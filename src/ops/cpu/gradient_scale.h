#pragma once
// The factor by which an update multiplies its gradient. It is 1, or the scale computed from the norm of all
// gradients. In the second case, the norm is the update's last read.

#include <optional>

#include "src/ops/cpu/kernel.h"
#include "src/ops/operand_pointers.h"

namespace vdnn::cpu {

struct GradientScale {
  float scale = 1;
  bool skips = false;               // gradients have overflowed, so nothing is updated
  std::uint64_t skipped_steps = 0;  // number of earlier skipped steps, which the optimizer does not count
};

class GradientScaling {
 public:
  // `states`: the number of the optimizer's states.
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
  std::optional<std::size_t> norm_;  // index of the read that is the norm, if there is one
  bool loss_scaled_ = false;
};

}  // namespace vdnn::cpu
