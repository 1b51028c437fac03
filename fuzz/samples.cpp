#include "fuzz/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vdnn::fuzz {

Sample read_sample(const Dataset& data, std::uint64_t index) {
  // Filled with values that the reader must overwrite everywhere.
  Sample sample{
      .image = std::vector<float>(element_count(data.sample_dims()), std::numeric_limits<float>::quiet_NaN()),
      .target = -1};
  data.read({.index = index}, sample.image, std::span(&sample.target, 1));
  require(std::ranges::all_of(sample.image, [](float value) { return std::isfinite(value); }),
          "a sample is finite everywhere");
  require(sample.target >= 0 && sample.target < data.classes(), "a sample has one of the classes");
  return sample;
}

}  // namespace vdnn::fuzz
