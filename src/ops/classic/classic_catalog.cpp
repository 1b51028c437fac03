#include "vdnn/classic_catalog.h"

#include <utility>

#include "src/ops/classic/convolution_algorithms.h"
#include "src/ops/classic/layers.h"
#include "src/ops/product_names.h"
#include "src/ops/standard_losses.h"
#include "src/ops/standard_recipes.h"
#include "src/ops/standard_updates.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

class ClassicCatalog final : public OpCatalog {
 public:
  ClassicCatalog(classic::ConvolutionAlgorithms algorithms, std::string source,
                 ProductPrecision matrix_products)
      : convolution_algorithms_(std::move(algorithms)),
        source_(std::move(source)),
        matrix_products_(matrix_products) {}

  LayerRecipe recipe(const OpSpec& spec, std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs, Mode mode) const override {
    return std::visit([&](const auto& known) { return layer(known, {inputs, outputs}, mode); }, spec);
  }

  UpdateRecipe update_recipe(const OptimizerSpec& spec, const ParameterRecipe& parameter,
                             bool clipped) const override {
    return std::visit(
        [&](const auto& known) { return ops::standard_update(known, parameter, clipped, classic::direct()); },
        spec);
  }

  OpRecipe gradient_norm_recipe(const GradientNormSpec& spec,
                                std::span<const ParameterRecipe> parameters) const override {
    return ops::standard_gradient_norm(spec, parameters, classic::direct());
  }

  OpRecipe gradient_sum_recipe(const ParameterRecipe& parameter) const override {
    return ops::standard_gradient_sum(parameter, classic::direct());
  }

  std::string algorithms_source() const override { return source_; }

 private:
  template <class Spec>
  LayerRecipe layer(const Spec& spec, const ops::LayerTypes& types, Mode mode) const {
    const ops::LayerAlgorithms algorithms{.forward = classic::direct(), .backward = classic::direct()};
    if constexpr (requires { classic::make_recipe(spec, types, mode, convolution_algorithms_); }) {
      return classic::make_recipe(spec, types, mode, convolution_algorithms_);
    } else if constexpr (requires { classic::make_recipe(spec, types, mode); }) {
      return classic::make_recipe(spec, types, mode);
    } else if constexpr (requires { ops::standard_recipe(spec, types, mode, algorithms); }) {
      return ops::standard_recipe(spec, types, mode, algorithms);
    } else {
      throw InvalidArgument("classic: unsupported kind of layer");
    }
  }

  static LayerRecipe layer(const BatchNormalizationSpec& spec, const ops::LayerTypes& types, Mode mode) {
    return ops::standard_recipe(spec, types, mode,
                                ops::BatchNormalizationAlgorithms{.forward = classic::direct(),
                                                                  .follow = classic::direct(),
                                                                  .backward = classic::direct(),
                                                                  .statistics = classic::direct(),
                                                                  .variance = classic::direct(),
                                                                  .sums = classic::direct()});
  }

  LayerRecipe layer(const FullyConnectedSpec& spec, const ops::LayerTypes& types, Mode mode) const {
    return classic::make_recipe(spec, types, mode, matrix_products_);
  }

  // A simulated device uses only the description.
  static LayerRecipe layer(const CustomSpec& spec, const ops::LayerTypes& types, Mode mode) {
    return ops::custom_recipe(spec, types, mode, "sim", 1);
  }

  classic::ConvolutionAlgorithms convolution_algorithms_;
  std::string source_;
  ProductPrecision matrix_products_;
};

}  // namespace

std::unique_ptr<OpCatalog> make_classic_catalog() {
  return classic::make_catalog(classic::convolution_algorithms, "classic");
}

std::unique_ptr<OpCatalog> classic::make_catalog(ConvolutionAlgorithms algorithms, std::string source,
                                                 ProductPrecision matrix_products) {
  return std::make_unique<ClassicCatalog>(std::move(algorithms), std::move(source), matrix_products);
}

std::unique_ptr<OpCatalog> classic::make_tensor_core_catalog(const SimProfile& profile,
                                                             const ProductPrecisions& precisions,
                                                             DataType storage) {
  const bool tf32 = precisions.convolutions == ProductPrecision::kTf32;
  ConvolutionAlgorithms algorithms = [profile, tf32](const ops::Convolution& convolution, Direction pass,
                                                     DataType elements) {
    return tf32 || is_narrow(elements) ? tensor_core_algorithms(convolution, pass, profile, elements)
                                       : convolution_algorithms(convolution, pass);
  };
  std::string source = ops::source_with("classic", precisions);
  if (is_narrow(storage)) {
    source += std::string(", ") + to_string(storage) + " modelled";
  }
  return make_catalog(std::move(algorithms), std::move(source), precisions.matrix_products);
}

}  // namespace vdnn
