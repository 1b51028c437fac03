#pragma once
// The algorithms of a convolution: the engines that a source has for it. Engines that round fp32 to TF32 are
// left out unless that is permitted, those that sum narrow types in less than fp32 and those that do not give
// the same bits twice always. An engine that the library lists after one with no more workspace is no choice,
// and is left out, too, unless its time makes it one. Times change the order of the others and not which
// there are: what was decided with times has its algorithms without them.

#include <memory>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Asks each question once; throws NoEngine where the source does. Where an engine was timed, its algorithm
// costs that; what the others cost is engine_costs.h's.
classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source,
                                                 ProductPrecision precision);

}  // namespace vdnn::cuda
