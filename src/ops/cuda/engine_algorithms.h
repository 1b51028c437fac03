#pragma once
// The algorithms of a convolution, made from the engines of a source. Engines that round fp32 to TF32 are
// omitted unless TF32 is permitted. Engines that sum narrow types in less than fp32, or whose bits differ
// between runs, are always omitted. An engine is also omitted if the library lists an earlier one that needs
// no more workspace, unless the later engine's measured time makes it worthwhile. Times change the order of
// algorithms but not the set, so that decisions made with times remain valid without them.

#include <memory>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The result asks the source each question once, and throws NoEngine if the source does. The cost of an
// engine is its measured time if there is one, otherwise that of engine_costs.h.
classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source,
                                                 ProductPrecision precision);

}  // namespace vdnn::cuda
