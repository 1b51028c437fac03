#pragma once
// The algorithms of a convolution: the engines that a source has for it. Feature maps are fp32: engines that
// round them to TF32 are left out unless that is permitted, and those that do not give the same bits twice
// always. An engine that is neither faster than one before it nor takes less workspace is no
// choice, and is left out, too.
//
// An algorithm that rounds to TF32 says so in its name, so that what was recorded with it is not taken for
// what keeps fp32.

#include <map>
#include <memory>
#include <string>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Asks each question once; throws NoEngine where the source does. Where an engine was timed, its algorithm
// costs that; what the others cost is engine_costs.h's.
classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source,
                                                 ProductPrecision precision);

// "cudnn 9.19.0", "cudnn 9.19.0, tf32 convolutions", or, with matrix products too, "cudnn 9.19.0, tf32".
std::string algorithms_source(const EngineSource& source, const ProductPrecisions& precisions);

// The name of what computes in TF32 and has this name in fp32, and back.
std::string in_tf32(const std::string& name);
bool is_in_tf32(const std::string& algorithm);
std::string without_precision(const std::string& algorithm);

// Those of a training whose algorithms were recorded, by names of ops.
ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms);

}  // namespace vdnn::cuda
