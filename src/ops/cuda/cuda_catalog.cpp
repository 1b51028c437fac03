#include "src/ops/cuda/cuda_catalog.h"

#include <utility>

#include "src/ops/cuda/engine_algorithms.h"
#include "src/ops/product_names.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

CudaCatalog::CudaCatalog(std::shared_ptr<const EngineSource> engines, const ProductPrecisions& precisions)
    : source_(ops::source_with(engines->name(), precisions)),
      products_{.convolutions = engine_algorithms(std::move(engines), precisions.convolutions),
                .matrix_products = precisions.matrix_products} {}

LayerRecipe CudaCatalog::recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                                std::span<const TensorType> outputs, Mode mode) const {
  return std::visit(
      [&](const auto& known) -> LayerRecipe {
        if constexpr (requires { make_recipe(known, LayerTypes{inputs, outputs}, mode, products_); }) {
          return make_recipe(known, LayerTypes{inputs, outputs}, mode, products_);
        } else if constexpr (requires { make_recipe(known, LayerTypes{inputs, outputs}, mode); }) {
          return make_recipe(known, LayerTypes{inputs, outputs}, mode);
        } else {
          throw InvalidArgument("cuda: unsupported kind of layer");
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

OpRecipe CudaCatalog::gradient_sum_recipe(const ParameterRecipe& parameter) const {
  return make_gradient_sum_recipe(parameter);
}

std::string CudaCatalog::algorithms_source() const {
  return source_;
}

}  // namespace vdnn::cuda
