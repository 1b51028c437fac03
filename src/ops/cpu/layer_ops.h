#pragma once
// Every kind of layer is a pair of overloads, selected by the type of its spec: `make_recipe` returns its
// recipe, `make_kernel` compiles one of its ops. Both throw InvalidArgument (or dnnl::error, which the
// callers translate) for an unsupported layer. Create a ThreadScope before a call, since both functions
// create primitives.

#include <memory>
#include <span>

#include "src/ops/cpu/dnnl_support.h"
#include "src/ops/cpu/kernel.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

using ops::LayerTypes;

LayerRecipe make_recipe(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const TransposedConvolutionSpec& spec,
                        const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const FullyConnectedSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const ReluSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const PoolingSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const UpsamplingSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const LrnSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const AddSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const SigmoidSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const ConcatenationSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const BatchNormalizationSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const GroupNormalizationSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const DropoutSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const ConversionSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const GradientScalingSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const LossScaleUpdateSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const CustomSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const Context& context, const SoftmaxCrossEntropySpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const MeanSquaredErrorSpec& spec, const LayerTypes& types,
                        Mode mode);
LayerRecipe make_recipe(const Context& context, const DiceCrossEntropySpec& spec, const LayerTypes& types,
                        Mode mode);

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConvolutionSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const TransposedConvolutionSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const FullyConnectedSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ReluSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const PoolingSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const UpsamplingSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const LrnSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AddSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SigmoidSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConcatenationSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const BatchNormalizationSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GroupNormalizationSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const DropoutSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConversionSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GradientScalingSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const LossScaleUpdateSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const CustomSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SoftmaxCrossEntropySpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const MeanSquaredErrorSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const DiceCrossEntropySpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SgdSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AdamSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GradientNormSpec& spec,
                                       const KernelRequest& request);
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GradientSumSpec& spec,
                                       const KernelRequest& request);

// Optimizers are not layers and have their own recipes.
UpdateRecipe make_update_recipe(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped);
UpdateRecipe make_update_recipe(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped);
OpRecipe make_gradient_norm_recipe(const GradientNormSpec& spec, std::span<const ParameterRecipe> parameters);
OpRecipe make_gradient_sum_recipe(const ParameterRecipe& parameter);

}  // namespace vdnn::cpu
