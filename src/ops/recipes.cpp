#include "src/ops/recipes.h"

#include <optional>
#include <string>

#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

[[noreturn]] void reject_window(std::int64_t input, const WindowAxis& window, std::string_view layer) {
  throw InvalidArgument(std::string(layer) + ": kernel " + std::to_string(window.kernel) + ", stride " +
                        std::to_string(window.stride) + ", padding " + std::to_string(window.padding) +
                        ", dilation " + std::to_string(window.dilation) + " do not fit an extent of " +
                        std::to_string(input));
}

}  // namespace

LayerTypes types_of(const Op& op) {
  return {op.layer_inputs, op.layer_outputs};
}

std::vector<Algorithm> own_algorithm(std::uint64_t workspace_bytes) {
  return {Algorithm{.name = "vdnn", .workspace_bytes = workspace_bytes}};
}

void require_fp32_channels_last(std::span<const TensorType> types, std::string_view layer) {
  for (const TensorType& type : types) {
    if (type.data_type != DataType::kF32) {
      throw InvalidArgument(std::string(layer) + ": computes fp32 only, got " + to_string(type.data_type) +
                            " for " + to_string(type.dims));
    }
  }
  require_channels_last(types, layer);
}

void require_channels_last(std::span<const TensorType> types, std::string_view layer) {
  for (const TensorType& type : types) {
    if (!is_floating(type.data_type)) {
      throw InvalidArgument(std::string(layer) + ": computes floating-point numbers only, got " +
                            to_string(type.data_type) + " for " + to_string(type.dims));
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
  require_channels_last(types.inputs, layer);
  require_channels_last(types.outputs, layer);
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
    throw InvalidArgument(std::string(layer) + ": one to three spatial dimensions expected, got " +
                          to_string(input));
  }
  if (window.kernel.size() != rank || window.stride.size() != rank || window.padding.size() != rank ||
      (!window.dilation.empty() && window.dilation.size() != rank)) {
    throw InvalidArgument(std::string(layer) + ": kernel, stride, padding and dilation need " +
                          std::to_string(rank) + " entries for " + to_string(input));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const WindowAxis axis = window.axis(i);
    const bool positive = axis.kernel > 0 && axis.stride > 0 && axis.dilation > 0;
    if (!positive || axis.padding < 0 || !axis.reaches_input()) {
      reject_window(input[i + 2], axis, layer);
    }
  }
}

Dims window_output(const Dims& input, std::int64_t channels, const Window& window, std::string_view layer) {
  require_window(input, window, layer);
  Dims output{input[0], channels};
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    const std::optional<std::int64_t> places = window.axis(i).places(input[i + 2]);
    if (!places) {
      reject_window(input[i + 2], window.axis(i), layer);
    }
    output.push_back(*places);
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

void require_pooling(const PoolingSpec& spec, const LayerTypes& types) {
  constexpr const char* kLayer = "pooling";
  require_one_to_one(types, kLayer);
  const Dims& input = types.inputs[0].dims;
  const std::int64_t channels = input.size() > 1 ? input[1] : 0;
  require_output(types.outputs[0],
                 window_output(input, channels, {spec.kernel, spec.stride, spec.padding, {}}, kLayer),
                 kLayer);
}

void require_lrn(const LrnSpec& spec, const LayerTypes& types) {
  constexpr const char* kLayer = "local response normalisation";
  require_one_to_one(types, kLayer);
  if (types.inputs[0].spatial_rank() < 1) {
    throw InvalidArgument(std::string(kLayer) + ": " + to_string(types.inputs[0].dims) +
                          " has no spatial dimensions");
  }
  if (spec.size < 1 || spec.size % 2 == 0) {
    throw InvalidArgument(std::string(kLayer) + ": size " + std::to_string(spec.size) + " must be odd");
  }
  require_output(types.outputs[0], types.inputs[0].dims, kLayer);
}

}  // namespace vdnn::ops
