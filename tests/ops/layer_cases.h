#pragma once
// Layers and tensors for tests.

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/ops/op_harness.h"
#include "tests/ops/reference.h"
#include "tests/ops/reference_windows.h"

namespace vdnn::testing {

inline constexpr Operand kX{OperandRole::kInput, 0};
inline constexpr Operand kX1{OperandRole::kInput, 1};
inline constexpr Operand kY{OperandRole::kOutput, 0};
inline constexpr Operand kFilter{OperandRole::kParameter, 0};
inline constexpr Operand kBias{OperandRole::kParameter, 1};
inline constexpr Operand kSaved{OperandRole::kSaved, 0};
inline constexpr Operand kDY{OperandRole::kOutputGradient, 0};
inline constexpr Operand kDX{OperandRole::kInputGradient, 0};
inline constexpr Operand kDX1{OperandRole::kInputGradient, 1};
inline constexpr Operand kDFilter{OperandRole::kParameterGradient, 0};
inline constexpr Operand kDBias{OperandRole::kParameterGradient, 1};
inline constexpr Operand kState{OperandRole::kState, 0};

// Uniform nonzero numbers in [-1, 1), exact in single precision.
reference::Array random_array(const Dims& dims, std::uint32_t seed);
// A shuffle of multiples of 1/64 around zero, zero and repetitions excluded.
reference::Array distinct_array(const Dims& dims, std::uint32_t seed);

LayerCase convolution_case(const std::string& name, const Dims& input, const ConvolutionSpec& spec);
LayerCase transposed_convolution_case(const std::string& name, const Dims& input,
                                      const TransposedConvolutionSpec& spec);
LayerCase fully_connected_case(const std::string& name, const Dims& input, const FullyConnectedSpec& spec);
LayerCase pooling_case(const std::string& name, const Dims& input, const PoolingSpec& spec);
LayerCase upsampling_case(const std::string& name, const Dims& input, const UpsamplingSpec& spec);
// One input, and an output of its shape.
LayerCase same_shape_case(const std::string& name, const OpSpec& spec, const Dims& dims);
LayerCase relu_case(const Dims& dims);
LayerCase add_case(const Dims& dims);
// Convolutions, transposed convolutions and fully connected layers of every kind, for comparisons with the
// reference.
std::vector<LayerCase> filter_layer_cases();

reference::Window window_of(const ConvolutionSpec& spec);
reference::Window window_of(const TransposedConvolutionSpec& spec);
reference::Window window_of(const PoolingSpec& spec);

// The layer over feature maps of that type.
LayerCase in_type(LayerCase layer, DataType type);

// Fails the test if an element differs from the reference by more than the bound for results of that type.
void expect_within_bounds(const reference::Array& got, const reference::Sums& want,
                          DataType type = DataType::kF32);
void expect_equal(const reference::Array& got, const reference::Array& want);

// Runs each op in place, once for every operand that it may overwrite, and out of place. Expects the same
// bits. `set_operands` sets all operands that the ops read.
void expect_in_place_equals_apart(OpHarness& op, const std::function<void()>& set_operands);

// "name_threads2", as names of parametrised tests.
std::string test_name(const std::string& name, int threads);

}  // namespace vdnn::testing
