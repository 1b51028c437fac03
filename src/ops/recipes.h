#pragma once
// Building blocks of the recipes of all layers, on any device.

#include <span>
#include <string_view>
#include <vector>

#include "src/tape/window.h"
#include "vdnn/op_catalog.h"
#include "vdnn/tape.h"

namespace vdnn::ops {

// The types of a layer's values.
struct LayerTypes {
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
};
LayerTypes types_of(const Op& op);

// The single algorithm of ops that our own loops or kernels compute.
std::vector<Algorithm> own_algorithm(std::uint64_t workspace_bytes = 0);

// Throws InvalidArgument unless all types are floating-point, and all types with spatial dimensions have
// channels last.
void require_channels_last(std::span<const TensorType> types, std::string_view layer);
// Like require_channels_last(); all types must also be fp32.
void require_fp32_channels_last(std::span<const TensorType> types, std::string_view layer);
// Throws InvalidArgument unless there are `count` types.
void require_count(std::span<const TensorType> types, std::size_t count, std::string_view what);
// Like require_count() and require_channels_last(), for a layer with one input and one output.
void require_one_to_one(const LayerTypes& types, std::string_view layer);
// Throws InvalidArgument unless the output has the dims `expected`.
void require_output(const TensorType& output, const Dims& expected, std::string_view layer);

// Throws InvalidArgument unless the input has one to three spatial dimensions and the window has an entry for
// each. Entries must be positive and the padding less than the window's extent, so that every window reaches
// the input.
void require_window(const Dims& input, const Window& window, std::string_view layer);
// The shape of the output for `input` and `channels`. The window must fit the padded input.
Dims window_output(const Dims& input, std::int64_t channels, const Window& window, std::string_view layer);
// Elements of one window; 1 for an empty kernel.
double window_elements(const Dims& kernel);

// These functions throw InvalidArgument if the types do not fit the spec, or if no device can compute the
// layer.
void require_pooling(const PoolingSpec& spec, const LayerTypes& types);
void require_lrn(const LrnSpec& spec, const LayerTypes& types);

}  // namespace vdnn::ops
