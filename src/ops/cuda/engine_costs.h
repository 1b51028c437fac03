#pragma once
// The cost of each engine of a product, for predictions. The cost of an engine that was timed on the device
// is its time. For untimed engines, src/tape/order_costs.h turns cuDNN's order into costs, with one
// exception: the generic fallback (is_generic_engine() in engine_choice.h). The fallback needs no workspace
// and is not tuned to the shape, and NVIDIA does not expect it to be fast. An untimed fallback costs at least
// five times as much as the first choice, if that is another engine. With the algorithm without workspace of
// older versions of cuDNN, AlexNet's and VGG-A's convolutions took 2.1 to 2.9 times as long on one card as
// with the best algorithms (src/ops/classic/convolution_algorithms.h). Since then, tensor cores and Winograd
// have widened that gap. So a plan rarely uses the fallback where another engine fits (docs/planner.md).
//
// Only engines that are the first choice under some limits (engine_choice.h) get a cost. So recorded engines
// and the library itself lead to the same costs.

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr double kFallbackSlowdown = 5;

// Sets the costs of the algorithms of `op`, whose own cost counts arithmetic and operands. An algorithm whose
// cost has seconds was timed and keeps that time; untimed algorithms after it cost more. A cost includes the
// type in which the algorithm multiplies, since a device has a rate for each type.
void set_engine_costs(OpRecipe& op);

}  // namespace vdnn::cuda
