#pragma once
// Lowers the backward pass. Two rules decide which gradients are computed and how they are summed.
//
// The gradient of a feature map is needed if the map depends on a parameter. A gradient that is not needed is
// computed only if the op that makes it also makes a needed gradient.
//
// If a feature map forks, the contributions to its gradient are added in the order in which the backward pass
// makes them. Each contribution is added as soon as it is made, so at most two are alive.

#include <cstdint>

#include "src/network/lowering/loss_scaler.h"
#include "src/network/lowering/lowering_state.h"
#include "src/network/lowering/reductions.h"
#include "src/network/lowering/updates.h"

namespace vdnn::lowering {

// All arguments must outlive this object.
class BackwardLowering {
 public:
  BackwardLowering(LoweringState& state, Reductions& reductions, LossScaler& loss_scaler, Updates& updates)
      : state_(state), reductions_(reductions), loss_scaler_(loss_scaler), updates_(updates) {}

  // Lowers all layers, from the last to the first.
  void run();

 private:
  const TrainingOptions& options() const { return *state_.training; }
  bool is_needed(std::uint32_t id, const Operand& write) const;
  void choose_ops(std::uint32_t id);
  void expect_contributions(std::uint32_t id);
  void lower(std::uint32_t id);
  ValueId make(std::uint32_t id, const Operand& operand);
  ValueId make_input_gradient(std::uint32_t id, std::uint32_t index);
  ValueId make_parameter_gradient(std::uint32_t id, std::uint32_t index);
  void add_contribution(std::uint32_t id, std::uint32_t feature_map, ValueId value);
  void finish_gradient(std::uint32_t id, std::uint32_t parameter);

  LoweringState& state_;
  Reductions& reductions_;
  LossScaler& loss_scaler_;
  Updates& updates_;
};

}  // namespace vdnn::lowering
