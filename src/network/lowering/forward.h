#pragma once
// Lowers the forward pass: fetches the recipes of layers, declares their parameters, and appends their ops in
// the order of the layers.

#include <cstdint>

#include "src/network/lowering/lowering_state.h"
#include "src/network/lowering/reductions.h"

namespace vdnn::lowering {

// Both arguments must outlive this object.
class ForwardLowering {
 public:
  ForwardLowering(LoweringState& state, Reductions& reductions) : state_(state), reductions_(reductions) {}

  void declare_inputs();
  // Lowers layer `id`. Call it once for each layer, in the order of the layers.
  void lower(std::uint32_t id);

 private:
  void describe(std::uint32_t id);
  void fetch_recipe(std::uint32_t id);
  void declare_parameters(std::uint32_t id);
  bool makes_logits(std::uint32_t id) const;
  ValueId make(std::uint32_t id, const Operand& operand);
  ValueId make_output(std::uint32_t id);

  LoweringState& state_;
  Reductions& reductions_;
};

}  // namespace vdnn::lowering
