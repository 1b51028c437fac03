#pragma once
// The catalog of the CPU: oneDNN's implementations of each layer.

#include "src/ops/cpu/dnnl_support.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

class CpuCatalog final : public OpCatalog {
 public:
  explicit CpuCatalog(const Context& context) : context_(context) {}

  LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs, Mode mode) const override;
  UpdateRecipe update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                             bool clipped) const override;
  OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                std::span<const ParameterRecipe> parameters) const override;
  OpRecipe gradient_sum_recipe(const ParameterRecipe& parameter) const override;
  std::string algorithms_source() const override;

 private:
  Context context_;
};

}  // namespace vdnn::cpu
