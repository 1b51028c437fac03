#pragma once
// The catalog of CUDA: layers computed by our own kernels, and by cuDNN and cuBLASLt. engine_algorithms.h
// turns the engines that a source lists into the algorithms of a convolution.

#include <memory>
#include <string>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/layer_ops.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

class CudaCatalog final : public OpCatalog {
 public:
  explicit CudaCatalog(std::shared_ptr<const EngineSource> engines, const ProductPrecisions& precisions = {});

  // Throws NoEngine for a convolution for which the source has no engine.
  LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs, Mode mode) const override;
  UpdateRecipe update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                             bool clipped) const override;
  OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                std::span<const ParameterRecipe> parameters) const override;
  OpRecipe gradient_sum_recipe(const ParameterRecipe& parameter) const override;
  std::string algorithms_source() const override;

 private:
  std::string source_;
  ProductAlgorithms products_;
};

}  // namespace vdnn::cuda
