#pragma once
// Loss scaling (fp16). The gradient of each loss is multiplied by a persistent scale. At the end of the step,
// the scale is updated from the norm of all gradients.

#include <cstdint>

#include "src/network/lowering/lowering_state.h"

namespace vdnn::lowering {

// Does nothing if the options do not scale losses. The state must outlive this object.
class LossScaler {
 public:
  explicit LossScaler(LoweringState& state) : state_(state) {}

  void declare_scale();
  // Returns the gradient that the loss contributes to its prediction, times the scale.
  ValueId scale_gradient(std::uint32_t loss, ValueId gradient);
  // `gradient_norm`: kNone if no parameter has a gradient.
  void lower_update(ValueId gradient_norm);

 private:
  bool scales() const { return state_.training->scales_losses(); }

  LoweringState& state_;
};

}  // namespace vdnn::lowering
