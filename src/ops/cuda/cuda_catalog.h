#pragma once
// The catalog of CUDA: layers that kernels of our own compute.

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

class CudaCatalog final : public OpCatalog {
 public:
  LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs, Mode mode) const override;
  UpdateRecipe update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                             bool clipped) const override;
  OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                std::span<const ParameterRecipe> parameters) const override;
  std::string algorithms_source() const override;
};

}  // namespace vdnn::cuda
