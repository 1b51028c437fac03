#pragma once
// Single elements of a convolution in double precision, without all the others: what an engine's result is
// held to before it is trusted. Elements are numbered as they lie: feature maps channels last, filters K,
// window, C / groups.

#include <cstdint>
#include <span>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// What a pass reads and writes, in the order of VendorLibrary::convolution(); dims N or K, C, space.
struct PassTensors {
  Dims first;
  Dims second;
  Dims result;
};
PassTensors tensors_of(const EngineQuestion& question);

// A tensor of values that repeat: element i is values[(i + phase) mod their number]. So large operands take
// little memory on the host.
struct RepeatedValues {
  std::span<const float> values;
  std::uint64_t phase = 0;

  double at(std::uint64_t element) const {
    return static_cast<double>(values[(element + phase) % values.size()]);
  }
};

struct SampledElement {
  std::uint64_t element = 0;
  double value = 0;
  double squares = 0;  // of its products, summed
  std::uint64_t products = 0;
};

SampledElement sample_convolution(const EngineQuestion& question, std::uint64_t element,
                                  const RepeatedValues& first, const RepeatedValues& second);

// Products that an element sums at most.
std::uint64_t longest_sum(const EngineQuestion& question);

// The corners of a tensor, each once, then others that are drawn, up to `count` in all.
std::vector<std::uint64_t> sampled_elements(const Dims& dims, std::size_t count, std::uint64_t seed);

}  // namespace vdnn::cuda
