#include "src/ops/recipes.h"

#include <string>

#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

std::int64_t dilation(const Window& window, std::size_t axis) {
  return window.dilation.empty() ? 1 : window.dilation[axis];
}

std::int64_t window_extent(const Window& window, std::size_t axis) {
  return dilation(window, axis) * (window.kernel[axis] - 1) + 1;
}

[[noreturn]] void reject_window(const Dims& input, const Window& window, std::size_t axis,
                                std::string_view layer) {
  throw InvalidArgument(std::string(layer) + ": kernel " + std::to_string(window.kernel[axis]) + ", stride " +
                        std::to_string(window.stride[axis]) + ", padding " +
                        std::to_string(window.padding[axis]) + ", dilation " +
                        std::to_string(dilation(window, axis)) + " do not fit an extent of " +
                        std::to_string(input[axis + 2]));
}

}  // namespace

void require_fp32_channels_last(std::span<const TensorType> types, std::string_view layer) {
  for (const TensorType& type : types) {
    if (type.data_type != DataType::kF32) {
      throw InvalidArgument(std::string(layer) + ": computes fp32 only, got another type for " +
                            to_string(type.dims));
    }
    if (type.spatial_rank() > 0 && type.layout != Layout::kChannelsLast) {
      throw InvalidArgument(std::string(layer) + ": computes channels last (NHWC) only, got " +
                            to_string(type.dims) + " channels first");
    }
  }
}

void require_count(std::span<const TensorType> types, std::size_t count, std::string_view what) {
  if (types.size() != count) {
    throw InvalidArgument(std::string(what) + ": " + std::to_string(count) + " expected, got " +
                          std::to_string(types.size()));
  }
}

void require_one_to_one(const LayerTypes& types, std::string_view layer) {
  require_count(types.inputs, 1, std::string(layer) + ": inputs");
  require_count(types.outputs, 1, std::string(layer) + ": outputs");
  require_fp32_channels_last(types.inputs, layer);
  require_fp32_channels_last(types.outputs, layer);
}

void require_output(const TensorType& output, const Dims& expected, std::string_view layer) {
  if (output.dims != expected) {
    throw InvalidArgument(std::string(layer) + ": makes " + to_string(expected) + ", not " +
                          to_string(output.dims));
  }
}

void require_window(const Dims& input, const Window& window, std::string_view layer) {
  const std::size_t rank = input.size() < 2 ? 0 : input.size() - 2;
  if (rank < 1 || rank > 3) {
    throw InvalidArgument(std::string(layer) + ": one to three dimensions of space expected, got " +
                          to_string(input));
  }
  if (window.kernel.size() != rank || window.stride.size() != rank || window.padding.size() != rank ||
      (!window.dilation.empty() && window.dilation.size() != rank)) {
    throw InvalidArgument(std::string(layer) + ": kernel, stride, padding and dilation need " +
                          std::to_string(rank) + " entries for " + to_string(input));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const bool positive = window.kernel[i] > 0 && window.stride[i] > 0 && dilation(window, i) > 0;
    if (!positive || window.padding[i] < 0 || window.padding[i] >= window_extent(window, i)) {
      reject_window(input, window, i, layer);
    }
  }
}

Dims window_output(const Dims& input, std::int64_t channels, const Window& window, std::string_view layer) {
  require_window(input, window, layer);
  Dims output{input[0], channels};
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    const std::int64_t room = input[i + 2] + 2 * window.padding[i] - window_extent(window, i);
    if (room < 0) {
      reject_window(input, window, i, layer);
    }
    output.push_back(room / window.stride[i] + 1);
  }
  return output;
}

double window_elements(const Dims& kernel) {
  double elements = 1;
  for (const std::int64_t extent : kernel) {
    elements *= static_cast<double>(extent);
  }
  return elements;
}

}  // namespace vdnn::ops
