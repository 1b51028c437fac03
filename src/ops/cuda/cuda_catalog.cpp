#include "src/ops/cuda/cuda_catalog.h"

#include "src/ops/cuda/layer_ops.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

namespace {

// Layers that are a library's business, by name.
const char* name_of(const ConvolutionSpec&) {
  return "convolution (cuDNN)";
}
const char* name_of(const TransposedConvolutionSpec&) {
  return "transposed convolution (cuDNN)";
}
const char* name_of(const FullyConnectedSpec&) {
  return "fully connected (cuBLASLt)";
}
const char* name_of(const PoolingSpec&) {
  return "pooling (cuDNN)";
}
const char* name_of(const BatchNormalizationSpec&) {
  return "batch normalisation (cuDNN)";
}
const char* name_of(const LrnSpec&) {
  return "local response normalisation (cuDNN)";
}

}  // namespace

LayerRecipe CudaCatalog::recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                                std::span<const TensorType> outputs, Mode mode) const {
  return std::visit(
      [&](const auto& known) -> LayerRecipe {
        if constexpr (requires { make_recipe(known, LayerTypes{inputs, outputs}, mode); }) {
          return make_recipe(known, LayerTypes{inputs, outputs}, mode);
        } else if constexpr (requires { name_of(known); }) {
          throw InvalidArgument(std::string("cuda: ") + name_of(known) + " is not computed yet");
        } else {
          throw InvalidArgument("cuda: not a layer that it computes");
        }
      },
      spec);
}

UpdateRecipe CudaCatalog::update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                                        bool clipped) const {
  return std::visit([&](const auto& known) { return make_update_recipe(known, parameter, clipped); }, spec);
}

OpRecipe CudaCatalog::gradient_norm_recipe(const GradientNormSpec& spec,
                                           std::span<const ParameterRecipe> parameters) const {
  return make_gradient_norm_recipe(spec, parameters);
}

std::string CudaCatalog::algorithms_source() const {
  return "vdnn for cuda";
}

}  // namespace vdnn::cuda
