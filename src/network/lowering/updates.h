#pragma once
// Lowers the updates of parameters, and computations on gradients for them: sums over micro-steps and the
// norm of all gradients.
//
// A parameter is updated right after the last backward op of its layer that reads it or makes its gradient,
// so that gradients do not accumulate in memory. But if gradients are clipped by their common norm or summed
// over ranks, or losses scaled, all updates follow the backward pass. Within the backward pass, an update
// would make the remaining ops wait for the ranks.

#include <cstdint>

#include "src/network/lowering/lowering_state.h"
#include "src/network/lowering/reductions.h"

namespace vdnn::lowering {

// Whether updates depend on the norm of all gradients.
bool needs_gradient_norm(const TrainingOptions& options);

// The state and the reductions must outlive this object.
class Updates {
 public:
  Updates(LoweringState& state, Reductions& reductions) : state_(state), reductions_(reductions) {}

  // Adds the gradient of a micro-batch to the sum over the step.
  void accumulate(std::uint32_t id, std::uint32_t parameter);
  // Adds the updates that become possible after backward op `position` of the layer.
  void lower_after(std::uint32_t id, std::size_t position);
  // Adds the norm and the remaining updates after the backward pass.
  void finish();
  // kNone if there is no norm.
  ValueId gradient_norm() const { return gradient_norm_; }

 private:
  const TrainingOptions& options() const { return *state_.training; }
  bool follow_backward() const { return needs_gradient_norm(options()) || options().ranks > 1; }
  bool is_last_use(std::uint32_t id, std::size_t position, std::size_t parameter) const;
  void lower_gradient_norm();
  void lower_update(std::uint32_t id, std::size_t index);
  template <class Resolve>
  void add_parameter_op(Op op, const TensorType& parameter, const OpRecipe& recipe, const Resolve& resolve);

  LoweringState& state_;
  Reductions& reductions_;
  ValueId gradient_norm_ = kNone;
};

}  // namespace vdnn::lowering
