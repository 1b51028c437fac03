#pragma once
// Layers over narrow feature maps by way of fp32. Operands of fp16 and bf16 are widened into the op's
// workspace, the layer's fp32 kernel computes there, and what it makes is rounded to where it belongs. The
// results are those of a device that multiplies in the narrow type and sums in fp32, since products of two
// narrow factors are exact in fp32. It costs the copies: workspace of twice the narrow operands' size, and
// the time to pass over them.
//
// Not so computed: loops of our own (activations, additions, concatenation, dropout, group normalisation,
// conversions) work on narrow elements themselves, and where the processor multiplies bf16, oneDNN's own bf16
// kernels compute layers with filters, pooling and batch normalisation.

#include <memory>
#include <span>
#include <vector>

#include "src/ops/cpu/kernel.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

struct Context;

// Must the layer's ops be computed by way of fp32? The caller holds a ThreadScope: oneDNN is asked.
bool is_widened(const Context& context, const OpSpec& spec, std::span<const TensorType> inputs,
                std::span<const TensorType> outputs);

// The same shapes in fp32.
std::vector<TensorType> in_fp32(std::span<const TensorType> types);

// `recipe` is that of the layer in fp32.
LayerRecipe widened_recipe(LayerRecipe recipe, const OpSpec& spec, std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs);

// The op as its fp32 kernel knows it: the types of its layer, and the workspace without the copies.
Op op_in_fp32(const Tape& tape, const Op& op);
// `kernel` was compiled from op_in_fp32() of the requested op.
std::unique_ptr<CpuKernel> widened_kernel(const Context& context, std::unique_ptr<CpuKernel> kernel,
                                          const KernelRequest& request);

}  // namespace vdnn::cpu
