#include "src/ops/recipes.h"

#include <string>

#include "vdnn/error.h"

namespace vdnn::ops {

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

void require_output(const TensorType& output, const Dims& expected, std::string_view layer) {
  if (output.dims != expected) {
    throw InvalidArgument(std::string(layer) + ": makes " + to_string(expected) + ", not " +
                          to_string(output.dims));
  }
}

Dims window_output(const Dims& input, std::int64_t channels, const Window& window, std::string_view layer) {
  const std::size_t rank = input.size() < 2 ? 0 : input.size() - 2;
  if (rank < 1 || rank > 3) {
    throw InvalidArgument(std::string(layer) + ": one to three dimensions of space expected, got " +
                          to_string(input));
  }
  if (window.kernel.size() != rank || window.stride.size() != rank || window.padding.size() != rank) {
    throw InvalidArgument(std::string(layer) + ": kernel, stride and padding need " + std::to_string(rank) +
                          " entries for " + to_string(input));
  }
  Dims output{input[0], channels};
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t kernel = window.kernel[i];
    const std::int64_t stride = window.stride[i];
    const std::int64_t padding = window.padding[i];
    // A window that lies in the padding alone would have nothing to look at.
    if (kernel < 1 || stride < 1 || padding < 0 || padding >= kernel || input[i + 2] + 2 * padding < kernel) {
      throw InvalidArgument(std::string(layer) + ": kernel " + std::to_string(kernel) + ", stride " +
                            std::to_string(stride) + ", padding " + std::to_string(padding) +
                            " do not fit an extent of " + std::to_string(input[i + 2]));
    }
    output.push_back((input[i + 2] + 2 * padding - kernel) / stride + 1);
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
