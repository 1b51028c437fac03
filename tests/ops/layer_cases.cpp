#include "tests/ops/layer_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace vdnn::testing {

reference::Array random_array(const Dims& dims, std::uint32_t seed) {
  std::mt19937 engine(seed);
  reference::Array array(dims);
  for (double& value : array.data) {
    // Odd multiples of 2^-23.
    const auto bits = static_cast<std::int32_t>(engine() >> 8U) | 1;
    value = static_cast<double>(bits - (1 << 23)) * 0x1p-23;
  }
  return array;
}

reference::Array distinct_array(const Dims& dims, std::uint32_t seed) {
  std::mt19937 engine(seed);
  reference::Array array(dims);
  const double middle = static_cast<double>(array.data.size()) / 2 + 0.25;
  for (std::size_t i = 0; i < array.data.size(); ++i) {
    array.data[i] = (static_cast<double>(i) - middle) / 64;
  }
  for (std::size_t i = array.data.size(); i > 1; --i) {
    std::swap(array.data[i - 1], array.data[engine() % i]);
  }
  return array;
}

reference::Window window_of(const ConvolutionSpec& spec) {
  return {spec.kernel, spec.stride, spec.padding, spec.dilation};
}
reference::Window window_of(const TransposedConvolutionSpec& spec) {
  return {spec.kernel, spec.stride, spec.padding, {}};
}
reference::Window window_of(const PoolingSpec& spec) {
  return {spec.kernel, spec.stride, spec.padding, {}};
}

LayerCase convolution_case(const std::string& name, const Dims& input, const ConvolutionSpec& spec) {
  return {.name = name,
          .spec = spec,
          .inputs = {{.dims = input}},
          .output = {.dims = reference::window_output(input, spec.filters, window_of(spec))}};
}

LayerCase transposed_convolution_case(const std::string& name, const Dims& input,
                                      const TransposedConvolutionSpec& spec) {
  return {.name = name,
          .spec = spec,
          .inputs = {{.dims = input}},
          .output = {.dims = reference::transposed_output(input, spec.filters, window_of(spec))}};
}

LayerCase fully_connected_case(const std::string& name, const Dims& input, const FullyConnectedSpec& spec) {
  return {
      .name = name, .spec = spec, .inputs = {{.dims = input}}, .output = {.dims = {input[0], spec.outputs}}};
}

LayerCase pooling_case(const std::string& name, const Dims& input, const PoolingSpec& spec) {
  return {.name = name,
          .spec = spec,
          .inputs = {{.dims = input}},
          .output = {.dims = reference::window_output(input, input[1], window_of(spec))}};
}

LayerCase upsampling_case(const std::string& name, const Dims& input, const UpsamplingSpec& spec) {
  return {.name = name,
          .spec = spec,
          .inputs = {{.dims = input}},
          .output = {.dims = reference::upsampling_output(input, spec.factors)}};
}

LayerCase same_shape_case(const std::string& name, const OpSpec& spec, const Dims& dims) {
  return {.name = name, .spec = spec, .inputs = {{.dims = dims}}, .output = {.dims = dims}};
}

LayerCase relu_case(const Dims& dims) {
  return same_shape_case("relu", ReluSpec{}, dims);
}

LayerCase add_case(const Dims& dims) {
  return {
      .name = "add", .spec = AddSpec{}, .inputs = {{.dims = dims}, {.dims = dims}}, .output = {.dims = dims}};
}

void expect_within_bounds(const reference::Array& got, const reference::Sums& want) {
  ASSERT_EQ(got.dims, want.value.dims);
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    // Not EXPECT_LE alone, which would not say where, nor its negation, which a NaN would pass.
    const double error = std::abs(got.data[i] - want.value.data[i]);
    ASSERT_TRUE(error <= want.bound(i))
        << "element " << i << " of " << to_string(got.dims) << ": got " << got.data[i] << ", want "
        << want.value.data[i] << " within " << want.bound(i) << " (" << want.terms[i] << " terms)";
  }
}

void expect_equal(const reference::Array& got, const reference::Array& want) {
  ASSERT_EQ(got.dims, want.dims);
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    ASSERT_EQ(got.data[i], want.data[i]) << "element " << i << " of " << to_string(got.dims);
  }
}

void expect_in_place_equals_apart(OpHarness& op, const std::function<void()>& set_operands) {
  for (OpId id = 0; id < op.recipes().size(); ++id) {
    const OpRecipe& recipe = op.recipe(id);
    for (const Overwrite& permission : recipe.may_overwrite) {
      SCOPED_TRACE("op " + std::to_string(id) + " over read " + std::to_string(permission.read));
      set_operands();
      op.run(id);
      std::vector<reference::Array> apart;
      for (const Operand& written : recipe.writes) {
        apart.push_back(op.get(written));
      }
      set_operands();
      op.run(id, {.in_place = permission});
      for (std::size_t i = 0; i < recipe.writes.size(); ++i) {
        expect_equal(op.get(i == permission.write ? recipe.reads[permission.read] : recipe.writes[i]),
                     apart[i]);
      }
    }
  }
}

std::string test_name(const std::string& name, int threads) {
  return name + "_threads" + std::to_string(threads);
}

}  // namespace vdnn::testing
