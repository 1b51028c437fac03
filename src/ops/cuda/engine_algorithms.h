#pragma once
// The algorithms of a convolution, made from the engines of a source. Engines that sum narrow types in less
// than fp32 are omitted, and so are engines whose results differ between runs. If TF32 is not permitted,
// engines that round fp32 to TF32 are omitted, too. Of the remaining engines, those are offered that are the
// first choice under some limits (engine_choice.h): in the library's order or, among timed engines, by time.
// So times only add engines to a set that does not depend on times, and decisions that were made without
// times remain valid.

#include <memory>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The returned function asks the source each question once, and throws NoEngine if the source does. The cost
// of an engine is its measured time or, if there is none, the cost that engine_costs.h computes.
classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source,
                                                 ProductPrecision precision);

}  // namespace vdnn::cuda
