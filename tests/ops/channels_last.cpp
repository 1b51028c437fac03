#include "tests/ops/channels_last.h"

namespace vdnn::testing {

namespace {

// For each element in logical order, its position in a channels-last array.
std::vector<std::size_t> channels_last_positions(const Dims& dims) {
  std::vector<std::size_t> positions;
  const auto channels = static_cast<std::size_t>(dims.size() > 1 ? dims[1] : 1);
  const auto outer = static_cast<std::size_t>(dims[0]);
  std::size_t space = 1;
  for (std::size_t axis = 2; axis < dims.size(); ++axis) {
    space *= static_cast<std::size_t>(dims[axis]);
  }
  for (std::size_t n = 0; n < outer; ++n) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t s = 0; s < space; ++s) {
        positions.push_back((n * space + s) * channels + c);
      }
    }
  }
  return positions;
}

}  // namespace

std::vector<float> to_channels_last(const reference::Array& array) {
  const std::vector<std::size_t> positions = channels_last_positions(array.dims);
  std::vector<float> data(array.data.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[positions[i]] = static_cast<float>(array.data[i]);
  }
  return data;
}

reference::Array from_channels_last(const Dims& dims, std::span<const float> data) {
  const std::vector<std::size_t> positions = channels_last_positions(dims);
  reference::Array array(dims);
  for (std::size_t i = 0; i < data.size(); ++i) {
    array.data[i] = static_cast<double>(data[positions[i]]);
  }
  return array;
}

}  // namespace vdnn::testing
