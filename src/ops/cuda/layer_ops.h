#pragma once
// Every kind of layer is a pair of overloads, selected by the type of its spec: `make_recipe` returns its
// recipe, `make_kernel` compiles one of its ops. Both throw InvalidArgument for an unsupported layer. Layers
// that use the vendor's library or the algorithms of products get them as arguments.

#include <span>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/launcher.h"
#include "src/ops/cuda/vendor_library.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

using classic::ConvolutionAlgorithms;
using ops::LayerTypes;
using ops::own_algorithm;

// The algorithms of layers with filters.
struct ProductAlgorithms {
  ConvolutionAlgorithms convolutions;
  ProductPrecision matrix_products = ProductPrecision::kFp32;
};

LayerRecipe make_recipe(const ConvolutionSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products);
LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products);
LayerRecipe make_recipe(const FullyConnectedSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products);
LayerRecipe make_recipe(const PoolingSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const LrnSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const BatchNormalizationSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const ReluSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const SigmoidSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const UpsamplingSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const AddSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const ConcatenationSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const GroupNormalizationSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const DropoutSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const ConversionSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const GradientScalingSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const SoftmaxCrossEntropySpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const MeanSquaredErrorSpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const DiceCrossEntropySpec& spec, const LayerTypes& types, Mode mode);
LayerRecipe make_recipe(const CustomSpec& spec, const LayerTypes& types, Mode mode);

OpKernel make_kernel(const ConvolutionSpec& spec, const KernelRequest& request, VendorLibrary& library);
OpKernel make_kernel(const TransposedConvolutionSpec& spec, const KernelRequest& request,
                     VendorLibrary& library);
OpKernel make_kernel(const FullyConnectedSpec& spec, const KernelRequest& request, VendorLibrary& library);
OpKernel make_kernel(const PoolingSpec& spec, const KernelRequest& request, VendorLibrary& library);
OpKernel make_kernel(const LrnSpec& spec, const KernelRequest& request, VendorLibrary& library);
OpKernel make_kernel(const BatchNormalizationSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const ReluSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const SigmoidSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const UpsamplingSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const AddSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const ConcatenationSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const GroupNormalizationSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const DropoutSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const ConversionSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const GradientScalingSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const LossScaleUpdateSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const SoftmaxCrossEntropySpec& spec, const KernelRequest& request);
OpKernel make_kernel(const MeanSquaredErrorSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const DiceCrossEntropySpec& spec, const KernelRequest& request);
OpKernel make_kernel(const CustomSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const SgdSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const AdamSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const GradientNormSpec& spec, const KernelRequest& request);
OpKernel make_kernel(const GradientSumSpec& spec, const KernelRequest& request);

// Optimizers and gradients are not layers and have their own recipes.
UpdateRecipe make_update_recipe(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped);
UpdateRecipe make_update_recipe(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped);
OpRecipe make_gradient_norm_recipe(const GradientNormSpec& spec, std::span<const ParameterRecipe> parameters);
OpRecipe make_gradient_sum_recipe(const ParameterRecipe& parameter);

}  // namespace vdnn::cuda
