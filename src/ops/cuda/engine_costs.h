#pragma once
// What each engine of a product costs, for predictions. Where engines were timed on the device, that is
// known. Otherwise cuDNN's order is all there is: src/tape/order_costs.h turns that into costs, with one
// exception, the generic fallback (is_generic_engine() in engine_choice.h). It serves where nothing else can,
// without workspace and without being tuned to the shape, and NVIDIA expects no speed of it. An untimed
// fallback that is not the first choice costs five times as much as that at least. Measured on one card for
// the same algorithm of older versions of cuDNN: without workspace, AlexNet's and VGG-A's convolutions took
// 2.1 to 2.9 times as long as with the best algorithms (src/ops/classic/convolution_algorithms.h); tensor
// cores and Winograd have widened that gap since. So a plan falls back only where nothing else fits.
//
// Only engines that some limits make the choice count (engine_choice.h), so that a table of recorded engines
// and the library itself lead to the same costs.

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr double kFallbackSlowdown = 5;

// Of the algorithms of `op`, whose own cost is that of its arithmetic and operands. An algorithm that has a
// cost with seconds was timed and keeps them; one that follows such takes longer than it. The type that an
// algorithm multiplies in is part of its cost, for a device has a rate for each.
void set_engine_costs(OpRecipe& op);

}  // namespace vdnn::cuda
