#pragma once
// Updates of parameters, and what is made of gradients for them: sums over micro-steps and the norm of all.
//
// A parameter is updated right after the last backward op of its layer that reads it or makes its gradient,
// so that gradients do not pile up. But if gradients are clipped by their common norm, or losses scaled, or
// gradients summed over ranks, all updates follow the backward pass: an update within it would make the rest
// of it wait for the ranks.

#include <cstdint>

#include "src/network/lowering/lowering_state.h"
#include "src/network/lowering/reductions.h"

namespace vdnn::lowering {

// Whether updates depend on the norm of all gradients.
bool needs_gradient_norm(const TrainingOptions& options);

// The state and the reductions outlive it.
class Updates {
 public:
  Updates(LoweringState& state, Reductions& reductions) : state_(state), reductions_(reductions) {}

  // Adds the gradient of a micro-batch to the sum over the step.
  void accumulate(std::uint32_t id, std::uint32_t parameter);
  // The updates that have become possible with backward op `position` of the layer.
  void lower_after(std::uint32_t id, std::size_t position);
  // After the backward pass: the norm and the updates that are still to come.
  void finish();
  // kNone: there is none.
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
