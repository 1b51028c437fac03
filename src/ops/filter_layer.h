#pragma once
// Convolutions, transposed convolutions and fully connected layers are the same thing to a runtime: a filter
// and perhaps a bias applied to an input, and three passes, whatever the device.

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
  Dims filter;              // logical: K, C / groups, space
  Dims stride;              // of windows; a fully connected layer has none
  Dims padding;             // likewise
  std::int64_t groups = 1;  // that the filter's K is split into
  bool bias = true;
  double multiply_adds = 0;  // of one pass
  std::int64_t fan_in = 0;   // products that one output sums, on average

  TensorType filter_type() const { return {.dims = filter}; }
  TensorType bias_type() const { return {.dims = {filter[0]}}; }
};

// All throw InvalidArgument where the types are not what the spec makes.
FilterShape filter_shape(const ConvolutionSpec& spec, const LayerTypes& types);
FilterShape filter_shape(const TransposedConvolutionSpec& spec, const LayerTypes& types);
FilterShape filter_shape(const FullyConnectedSpec& spec, const LayerTypes& types);

// How a device holds the parameters.
struct FilterStorage {
  std::uint64_t filter_bytes = 0;
  std::string filter_layout;
  std::string bias_layout;
};

// Of one pass; at least one, the first choice first.
using PassAlgorithms = std::function<std::vector<Algorithm>(Direction)>;

// Forward reads X, filter and bias; the filter's gradient is made before that of the data, of X and dY, and
// the bias's with it; the data's of dY and filter. Nothing may be overwritten.
LayerRecipe filter_layer_recipe(const FilterShape& shape, const FilterStorage& storage,
                                const PassAlgorithms& algorithms, Mode mode);

}  // namespace vdnn::ops
