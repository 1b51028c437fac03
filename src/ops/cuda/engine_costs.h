#pragma once
// The cost of each engine of a product, for predictions. Engines that were timed on the device have their
// times. For the others src/tape/order_costs.h turns cuDNN's order into costs, with one exception: the
// generic fallback (is_generic_engine() in engine_choice.h). The fallback needs no workspace and is not tuned
// to the shape, and NVIDIA does not expect it to be fast. An untimed fallback costs at least five times as
// much as the first choice, if that is another engine. The same algorithm of older versions of cuDNN was
// measured on one card: without workspace, AlexNet's and VGG-A's convolutions took 2.1 to 2.9 times as long
// as with the best algorithms (src/ops/classic/convolution_algorithms.h). Tensor cores and Winograd have
// widened that gap since. So a plan uses the fallback only if nothing else fits.
//
// Only engines that are the first choice under some limits count (engine_choice.h). So recorded engines and
// the library itself lead to the same costs.

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr double kFallbackSlowdown = 5;

// Sets the costs of the algorithms of `op`, whose own cost counts arithmetic and operands. An algorithm whose
// cost has seconds was timed and keeps that time; untimed algorithms after it cost more. A cost includes the
// type in which the algorithm multiplies, since a device has a rate for each type.
void set_engine_costs(OpRecipe& op);

}  // namespace vdnn::cuda
