#pragma once
// The algorithms of a convolution, made from the engines of a source. Engines that round fp32 to TF32 are
// left out unless that is permitted. Engines that sum narrow types in less than fp32, or do not repeat their
// bits, are always left out. So is an engine that the library lists after one with no more workspace, unless
// its measured time makes it worthwhile. Times change the order of algorithms but not the set, so that
// decisions made with times hold without them.

#include <memory>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Asks the source each question once, and throws NoEngine if the source does. The cost of an engine is its
// measured time if there is one, otherwise that of engine_costs.h.
classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source,
                                                 ProductPrecision precision);

}  // namespace vdnn::cuda
