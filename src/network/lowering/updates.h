#pragma once
// Lowers the updates of parameters. Also lowers the computations on gradients that updates need: the sums
// over micro-steps and the norm of all gradients.
//
// A gradient occupies memory until its parameter is updated. So a parameter is updated right after the last
// backward op of its layer that reads the parameter or makes its gradient. In three cases, all updates follow
// the backward pass. If gradients are clipped or losses are scaled, updates depend on the norm of all
// gradients. If gradients are summed over ranks, an update within the backward pass would make the remaining
// ops wait for the other ranks.

#include <cstdint>

#include "src/network/lowering/lowering_state.h"
#include "src/network/lowering/reductions.h"

namespace vdnn::lowering {

// Whether updates depend on the norm of all gradients.
bool needs_gradient_norm(const TrainingOptions& options);

// Both arguments must outlive this object.
class Updates {
 public:
  Updates(LoweringState& state, Reductions& reductions) : state_(state), reductions_(reductions) {}

  // Adds the op that adds a micro-batch's gradient to the sum over the update's micro-batches.
  void accumulate(std::uint32_t id, std::uint32_t parameter);
  // Adds the updates that become possible after backward op `position` of the layer.
  void lower_after(std::uint32_t id, std::size_t position);
  // Call it after the backward pass: adds the norm of all gradients, if needed, and the remaining updates.
  void finish();
  // The value of the norm; kNone if there is no norm.
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
