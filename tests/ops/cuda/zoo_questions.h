#pragma once
// The questions of the zoo's networks to the source of convolution engines.

#include <cstdint>
#include <span>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The three passes of every convolution of the zoo, each once.
std::vector<EngineQuestion> zoo_questions(std::int64_t batch, std::span<const DataType> elements);

// What `share/engines/` has answers to: the zoo in fp32, at the batch that the command takes by default.
std::vector<EngineQuestion> recorded_questions();

}  // namespace vdnn::cuda
