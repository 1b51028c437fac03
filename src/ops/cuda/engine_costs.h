#pragma once
// What each engine of a product costs, for predictions. Where engines were timed on the device, that is
// known. Where not, all that is known is the order: cuDNN's heuristic lists what it takes to be fastest
// first, and says nothing of how much faster. The assumption, for want of a published figure: the first
// engine reaches the device's rates, and each of the others takes 5 % longer than the one before it. So a
// simulated GPU never prefers a later engine but for its workspace, and the price of that is small, not
// nothing.
//
// Only engines that some limits make the choice count (engine_choice.h), so that a table of recorded engines
// and the library itself lead to the same costs.

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

// Of the algorithms of `op`, whose own cost is that of its arithmetic and operands. An algorithm that has a
// cost with seconds was timed and keeps them; one that follows such takes longer than it.
void set_engine_costs(OpRecipe& op);

}  // namespace vdnn::cuda
