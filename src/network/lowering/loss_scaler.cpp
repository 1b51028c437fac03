#include "src/network/lowering/loss_scaler.h"

#include <string>

namespace vdnn::lowering {

void LossScaler::declare_scale() {
  if (!scales()) {
    return;
  }
  const TensorType type = floats(sizeof(LossScale));
  state_.parts.loss_scale = state_.declare("loss_scale", ValueKind::kLossScale, type, type.bytes());
}

ValueId LossScaler::scale_gradient(std::uint32_t id, ValueId gradient) {
  if (!scales()) {
    return gradient;
  }
  const Value own = state_.parts.values[gradient];
  state_.parts.values[gradient].name += ".unscaled";
  const ValueId scaled = state_.declare(own.name, own.kind, own.type, own.bytes);
  state_.add_catalog_op({.name = state_.layer(id).name + ".scale",
                         .layer = id,
                         .phase = Phase::kBackward,
                         .direction = Direction::kBackwardData,
                         .spec = GradientScalingSpec{},
                         .layer_inputs = {own.type, floats(sizeof(LossScale))},
                         .layer_outputs = {own.type},
                         .reads = {gradient, state_.parts.loss_scale},
                         .writes = {scaled}});
  return scaled;
}

void LossScaler::lower_update(ValueId gradient_norm) {
  if (!scales() || gradient_norm == kNone) {
    return;
  }
  state_.add_catalog_op({.name = "loss_scale.update",
                         .phase = Phase::kUpdate,
                         .direction = Direction::kUpdate,
                         .spec = LossScaleUpdateSpec{.scaling = state_.training->loss_scaling},
                         .layer_inputs = {floats(sizeof(LossScale)), floats(sizeof(LossScaledNorm))},
                         .layer_outputs = {floats(sizeof(LossScale))},
                         .reads = {state_.parts.loss_scale, gradient_norm},
                         .writes = {state_.parts.loss_scale}});
}

}  // namespace vdnn::lowering
