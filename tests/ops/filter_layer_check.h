#pragma once
// Compares layers with filters with the reference in double precision.

#include <cstddef>
#include <memory>

#include "tests/ops/layer_cases.h"

namespace vdnn::testing {

// Random nonzero operands of a layer with a filter, in the type of its feature maps.
struct FilterLayerOperands {
  explicit FilterLayerOperands(const LayerCase& layer);

  bool has_bias() const { return !bias.dims.empty(); }
  // A harness with these operands set.
  std::unique_ptr<OpHarness> harness(OpLibrary& library, const LayerCase& layer, std::size_t shift = 0) const;

  reference::Array x;
  reference::Array dy;
  reference::Array filter;
  reference::Array bias;  // empty if the layer has no bias
};

// Roundings of intermediate results by a library.
struct RoundedOnTheWay {
  DataType filter_gradient = DataType::kF32;  // the type in which the library computes it
  bool products = false;                      // rounded to the output's type before the bias is added
};

// Fails the test if any algorithm of any pass differs from the reference by more than its bound.
void expect_filter_layer_within_bounds(OpLibrary& library, const LayerCase& layer,
                                       const RoundedOnTheWay& rounded = {});

}  // namespace vdnn::testing
