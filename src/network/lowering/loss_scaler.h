#pragma once
// Loss scaling (fp16). The gradient of each loss is multiplied by a persistent scale. At the end of the step,
// the scale is updated from the norm of all gradients.

#include <cstdint>

#include "src/network/lowering/lowering_state.h"

namespace vdnn::lowering {

// If the options do not scale losses, the functions do nothing. The state must outlive this object.
class LossScaler {
 public:
  explicit LossScaler(LoweringState& state) : state_(state) {}

  void declare_scale();
  // Multiplies `gradient`, the gradient of the loss with respect to its prediction, by the scale. Returns the
  // product.
  ValueId scale_gradient(std::uint32_t loss, ValueId gradient);
  // Adds the op that updates the scale. `gradient_norm`: kNone if no parameter has a gradient.
  void lower_update(ValueId gradient_norm);

 private:
  bool scales() const { return state_.training->scales_losses(); }

  LoweringState& state_;
};

}  // namespace vdnn::lowering
