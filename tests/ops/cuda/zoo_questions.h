#pragma once
// The questions that the zoo's networks ask a source of convolution engines.

#include <cstdint>
#include <span>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The three passes of every distinct convolution of the zoo.
std::vector<EngineQuestion> zoo_questions(std::int64_t batch, std::span<const DataType> elements);

// The questions that `share/engines/` answers: the zoo in fp32, at the command's default batch.
std::vector<EngineQuestion> recorded_questions();

}  // namespace vdnn::cuda
