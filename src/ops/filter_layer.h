#pragma once
// Layers with filters: convolutions, transposed convolutions and fully connected layers. On every device they
// have the same structure: a filter, an optional bias, and three passes.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::ops {

struct FilterShape {
  TensorType input;
  TensorType output;
  Dims filter;              // in logical order: K, C / groups, window
  Dims stride;              // of windows; empty for a fully connected layer
  Dims padding;             // of windows; empty for a fully connected layer
  std::int64_t groups = 1;  // groups into which the output channels K are split
  bool bias = true;
  double multiply_adds = 0;  // in one pass
  std::int64_t fan_in = 0;   // products that one output sums, on average

  TensorType filter_type() const { return {.dims = filter}; }
  TensorType bias_type() const { return {.dims = {filter[0]}}; }
};

// These overloads throw InvalidArgument if the types do not fit the spec.
FilterShape filter_shape(const ConvolutionSpec& spec, const LayerTypes& types);
FilterShape filter_shape(const TransposedConvolutionSpec& spec, const LayerTypes& types);
FilterShape filter_shape(const FullyConnectedSpec& spec, const LayerTypes& types);

// How a device stores the parameters.
struct FilterStorage {
  std::uint64_t filter_bytes = 0;
  std::string filter_layout;
  std::string bias_layout;
};

// Returns the algorithms of one pass: at least one algorithm, the first choice first.
using PassAlgorithms = std::function<std::vector<Algorithm>(Direction)>;

// Forward reads X, filter and bias. The first backward op computes the gradients of filter and bias from X
// and dY, the second the gradient of the data from dY and the filter. No operand may be overwritten.
LayerRecipe filter_layer_recipe(const FilterShape& shape, const FilterStorage& storage,
                                const PassAlgorithms& algorithms, Mode mode);

}  // namespace vdnn::ops
