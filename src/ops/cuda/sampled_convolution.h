#pragma once
// Computes single elements of a convolution in double precision, as the reference for checks of an engine's
// result. Elements are numbered in memory order: feature maps channels last, filters as K,
// window, C / groups.

#include <cstdint>
#include <span>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The operands of a pass, in the order of VendorLibrary::convolution(); dims are N or K, C, spatial.
struct PassTensors {
  Dims first;
  Dims second;
  Dims result;
};
PassTensors tensors_of(const EngineQuestion& question);

// A tensor of repeating values: element i is values[(i + phase) mod values.size()]. So large operands need
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
  double squares = 0;  // the sum of the squares of the element's products
  std::uint64_t products = 0;
};

SampledElement sample_convolution(const EngineQuestion& question, std::uint64_t element,
                                  const RepeatedValues& first, const RepeatedValues& second);

// The number of products of the element that sums the most.
std::uint64_t longest_sum(const EngineQuestion& question);

// Returns the corners of a tensor, each once, then random elements, up to `count` elements in all.
std::vector<std::uint64_t> sampled_elements(const Dims& dims, std::size_t count, std::uint64_t seed);

}  // namespace vdnn::cuda
