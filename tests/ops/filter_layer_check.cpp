#include "tests/ops/filter_layer_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <variant>

namespace vdnn::testing {

using reference::Array;

namespace {

std::vector<reference::Product> products_of(const LayerCase& layer, const Dims& filter) {
  const Dims& x = layer.inputs[0].dims;
  if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
    return reference::convolution(x, filter, window_of(*convolution));
  }
  if (const auto* transposed = std::get_if<TransposedConvolutionSpec>(&layer.spec)) {
    return reference::transposed_convolution(x, filter, window_of(*transposed));
  }
  return reference::fully_connected(x, filter);
}

Dims filter_dims(const LayerCase& layer) {
  Dims dims = layer.inputs[0].dims;
  dims[0] = layer.output.dims[1];
  if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
    dims[1] /= convolution->groups;
    std::ranges::copy(convolution->kernel, dims.begin() + 2);
  } else if (const auto* transposed = std::get_if<TransposedConvolutionSpec>(&layer.spec)) {
    std::ranges::copy(transposed->kernel, dims.begin() + 2);
  }
  return dims;
}

Array random_bias(const LayerCase& layer) {
  const bool has = std::visit(
      [](const auto& spec) {
        if constexpr (requires { spec.bias; }) {
          return spec.bias;
        }
        return false;
      },
      layer.spec);
  return has ? random_array({layer.output.dims[1]}, 24) : Array();
}

// The library rounds the sum of products to the type, and then the sum with the bias.
void expect_sum_with_bias(const Array& got, const reference::Sums& want, const Array& bias, DataType type) {
  ASSERT_EQ(got.dims, want.value.dims);
  const std::size_t channels = bias.data.size();
  const std::size_t places = got.data.size() / static_cast<std::size_t>(got.dims[0]) / channels;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    const double products = want.value.data[i] - bias.data[i / places % channels];
    const double bound = want.bound_with_part(i, type, products);
    ASSERT_TRUE(std::abs(got.data[i] - want.value.data[i]) <= bound)
        << "element " << i << " of " << to_string(got.dims) << ": got " << got.data[i] << ", want "
        << want.value.data[i] << " within " << bound;
  }
}

}  // namespace

FilterLayerOperands::FilterLayerOperands(const LayerCase& layer)
    : x(reference::rounded(random_array(layer.inputs[0].dims, 21), layer.inputs[0].data_type)),
      dy(reference::rounded(random_array(layer.output.dims, 22), layer.output.data_type)),
      filter(reference::rounded(random_array(filter_dims(layer), 23), layer.inputs[0].data_type)),
      bias(random_bias(layer)) {}

std::unique_ptr<OpHarness> FilterLayerOperands::harness(OpLibrary& library, const LayerCase& layer,
                                                        std::size_t shift) const {
  auto made = std::make_unique<OpHarness>(library, layer, Mode::kTraining, shift);
  made->set(kX, x);
  made->set(kDY, dy);
  made->set(kFilter, filter);
  if (has_bias()) {
    made->set(kBias, bias);
  }
  return made;
}

void expect_filter_layer_within_bounds(OpLibrary& library, const LayerCase& layer,
                                       const RoundedOnTheWay& rounded) {
  const FilterLayerOperands operands(layer);
  const auto op = operands.harness(library, layer);
  const reference::FilterPasses expected = reference::filter_passes(
      products_of(layer, operands.filter.dims),
      {.x = operands.x, .filter = operands.filter, .bias = operands.bias, .dy = operands.dy});
  for (OpId id = 0; id < op->recipes().size(); ++id) {
    for (std::uint32_t i = 0; i < op->recipe(id).algorithms.size(); ++i) {
      SCOPED_TRACE(op->tape().op(id).name + " " + op->recipe(id).algorithms[i].name);
      op->run(id, {.algorithm = i, .in_place = {}});
      switch (op->recipe(id).direction) {
        case Direction::kForward:
          if (rounded.products && operands.has_bias()) {
            expect_sum_with_bias(op->get(kY), expected.output, operands.bias, layer.output.data_type);
          } else {
            expect_within_bounds(op->get(kY), expected.output, layer.output.data_type);
          }
          break;
        case Direction::kBackwardData:
          expect_within_bounds(op->get(kDX), expected.input_gradient, layer.inputs[0].data_type);
          break;
        case Direction::kBackwardFilter:
          expect_within_bounds(op->get(kDFilter), expected.filter_gradient, rounded.filter_gradient);
          if (operands.has_bias()) {
            expect_within_bounds(op->get(kDBias), expected.bias_gradient);
          }
          break;
        case Direction::kUpdate:
          FAIL();
      }
    }
  }
}

}  // namespace vdnn::testing
