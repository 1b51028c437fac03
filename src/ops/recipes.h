#pragma once
// Small pieces that the recipes of all layers are put together from, whatever the device.

#include <span>
#include <string_view>
#include <vector>

#include "src/tape/window.h"
#include "vdnn/op_catalog.h"
#include "vdnn/tape.h"

namespace vdnn::ops {

// Of a layer's values.
struct LayerTypes {
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
};
LayerTypes types_of(const Op& op);

// The one algorithm of the ops that are loops or kernels of our own.
std::vector<Algorithm> own_algorithm(std::uint64_t workspace_bytes = 0);

// Throws InvalidArgument unless all types are of floating-point numbers and those with space lie channels
// last.
void require_channels_last(std::span<const TensorType> types, std::string_view layer);
// Likewise of fp32.
void require_fp32_channels_last(std::span<const TensorType> types, std::string_view layer);
// Throws InvalidArgument unless there are that many.
void require_count(std::span<const TensorType> types, std::size_t count, std::string_view what);
// Both, for a layer of one input and one output.
void require_one_to_one(const LayerTypes& types, std::string_view layer);
// Throws InvalidArgument unless the layer makes `expected`.
void require_output(const TensorType& output, const Dims& expected, std::string_view layer);

// Throws InvalidArgument unless the input has one to three dimensions of space and the window an entry for
// each: positive ones, and a padding less than the window's extent, so that no window lies in it alone.
void require_window(const Dims& input, const Window& window, std::string_view layer);
// The shape that such a window makes of `input` with `channels`; it must fit the padded input.
Dims window_output(const Dims& input, std::int64_t channels, const Window& window, std::string_view layer);
// Elements of one window; 1 for an empty kernel.
double window_elements(const Dims& kernel);

// Throw InvalidArgument where the types are not what the spec makes, or no device could compute it.
void require_pooling(const PoolingSpec& spec, const LayerTypes& types);
void require_lrn(const LrnSpec& spec, const LayerTypes& types);

}  // namespace vdnn::ops
