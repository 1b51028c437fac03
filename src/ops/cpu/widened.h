#pragma once
// Layers that compute narrow feature maps in fp32. Operands in fp16 and bf16 are widened into the op's
// workspace. The layer's fp32 kernel runs there, and its results are rounded into the op's writes. They are
// equal to the results of a device that multiplies in the narrow type and sums in fp32, since products of two
// narrow factors are exact in fp32. The cost is a workspace of twice the narrow operands' size, and the time
// of these copies.
//
// Other layers do not need copies: our own loops (activation functions, additions, concatenation, dropout,
// group normalisation, conversions) work on narrow elements directly. If the processor multiplies bf16,
// oneDNN's bf16 kernels compute layers with filters, pooling and batch normalisation.

#include <memory>
#include <span>
#include <vector>

#include "src/ops/cpu/kernel.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

struct Context;

// True if the layer's ops are computed in fp32 through copies. Create a ThreadScope before a call, since this
// function queries oneDNN.
bool is_widened(const Context& context, const OpSpec& spec, std::span<const TensorType> inputs,
                std::span<const TensorType> outputs);

// Returns the types with fp32 in place of narrow types.
std::vector<TensorType> in_fp32(std::span<const TensorType> types);

// Turns the recipe of the layer in fp32 into the recipe of the layer with narrow maps.
LayerRecipe widened_recipe(LayerRecipe recipe, const OpSpec& spec, std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs);

// The op as its fp32 kernel expects it: with types in fp32, and the workspace without the copies.
Op op_in_fp32(const Tape& tape, const Op& op);
// `kernel` must be compiled from op_in_fp32() of the requested op.
std::unique_ptr<CpuKernel> widened_kernel(const Context& context, std::unique_ptr<CpuKernel> kernel,
                                          const KernelRequest& request);

}  // namespace vdnn::cpu
