#pragma once
// The cost of each engine of a product, for predictions. Engines that were timed on the device have their
// times. For the others src/tape/order_costs.h turns cuDNN's order into costs, with one exception: the
// generic fallback (is_generic_engine() in engine_choice.h). It needs no workspace and is not tuned to the
// shape, and NVIDIA expects no speed of it. An untimed fallback costs at least five times as much as the
// first choice, if that is another engine. The same algorithm of older versions of cuDNN was measured on one
// card: without workspace, AlexNet's and VGG-A's convolutions took 2.1 to 2.9 times as long as with the best
// algorithms (src/ops/classic/convolution_algorithms.h), and tensor cores and Winograd have widened that gap
// since. So a plan uses the fallback only if nothing else fits.
//
// Only engines count that are the choice for some limits (engine_choice.h), so that recorded engines and the
// library itself lead to the same costs.

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr double kFallbackSlowdown = 5;

// Sets the costs of the algorithms of `op`, whose own cost counts arithmetic and operands. An algorithm whose
// cost has seconds was timed and keeps them; an untimed one after it costs more. The type in which an
// algorithm multiplies is part of its cost, since a device has a rate for each type.
void set_engine_costs(OpRecipe& op);

}  // namespace vdnn::cuda
