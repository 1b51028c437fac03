#include "src/ops/cpu/cpu_catalog.h"

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/widened.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

LayerRecipe CpuCatalog::recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                               std::span<const TensorType> outputs, Mode mode) const {
  const ThreadScope scope(context_.threads);
  try {
    if (is_widened(context_, spec, inputs, outputs)) {
      return widened_recipe(recipe(spec, in_fp32(inputs), in_fp32(outputs), mode), spec, inputs, outputs);
    }
    return std::visit(
        [&](const auto& known) -> LayerRecipe {
          if constexpr (requires { make_recipe(context_, known, LayerTypes{inputs, outputs}, mode); }) {
            return make_recipe(context_, known, LayerTypes{inputs, outputs}, mode);
          } else {
            throw InvalidArgument("cpu: unsupported kind of layer");
          }
        },
        spec);
  } catch (const dnnl::error& error) {
    throw InvalidArgument(algorithms_source() + " cannot compute a layer over " +
                          (inputs.empty() ? "nothing" : to_string(inputs[0].dims)) + ": " + error.what());
  }
}

UpdateRecipe CpuCatalog::update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                                       bool clipped) const {
  return std::visit(
      [&](const auto& known) -> UpdateRecipe {
        if constexpr (requires { make_update_recipe(known, parameter, clipped); }) {
          return make_update_recipe(known, parameter, clipped);
        } else {
          throw InvalidArgument("cpu: unsupported kind of optimizer");
        }
      },
      spec);
}

OpRecipe CpuCatalog::gradient_norm_recipe(const GradientNormSpec& spec,
                                          std::span<const ParameterRecipe> parameters) const {
  return make_gradient_norm_recipe(spec, parameters);
}

OpRecipe CpuCatalog::gradient_sum_recipe(const ParameterRecipe& parameter) const {
  return make_gradient_sum_recipe(parameter);
}

std::string CpuCatalog::algorithms_source() const {
  const dnnl_version_t& version = *dnnl::version();
  return "onednn " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

}  // namespace vdnn::cpu
