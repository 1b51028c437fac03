#pragma once
// Layers with filters, held to the reference in double precision.

#include <cstddef>
#include <memory>

#include "tests/ops/layer_cases.h"

namespace vdnn::testing {

// Operands of a layer with a filter: random, none of them zero, in the type of its feature maps.
struct FilterLayerOperands {
  explicit FilterLayerOperands(const LayerCase& layer);

  bool has_bias() const { return !bias.dims.empty(); }
  // A harness with all of them set.
  std::unique_ptr<OpHarness> harness(OpLibrary& library, const LayerCase& layer, std::size_t shift = 0) const;

  reference::Array x;
  reference::Array dy;
  reference::Array filter;
  reference::Array bias;  // empty where there is none
};

// Further roundings of a library on the way to its results.
struct RoundedOnTheWay {
  DataType filter_gradient = DataType::kF32;  // to this type
  bool products = false;                      // to the type of the output, before the bias is added
};

// Fails the test where an algorithm of any pass is further from the reference than its bound.
void expect_filter_layer_within_bounds(OpLibrary& library, const LayerCase& layer,
                                       const RoundedOnTheWay& rounded = {});

}  // namespace vdnn::testing
