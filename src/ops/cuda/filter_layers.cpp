// Convolutions, transposed convolutions and fully connected layers: a library's product, and a bias that is
// added and summed by kernels of our own.

#include <algorithm>
#include <array>

#include "src/ops/convolution.h"
#include "src/ops/cuda/bias.h"
#include "src/ops/cuda/engine_costs.h"
#include "src/ops/cuda/filter_storage.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/vendor_kernel.h"
#include "src/ops/filter_layer.h"
#include "src/ops/product_names.h"

namespace vdnn::cuda {

namespace {

// The bias's gradient follows the filter's in the same workspace.
LayerRecipe filter_recipe(const ops::FilterShape& shape, const char* filter_layout,
                          const ops::PassAlgorithms& products, Mode mode) {
  LayerRecipe recipe = ops::filter_layer_recipe(
      shape,
      {.filter_bytes = shape.filter_type().bytes(), .filter_layout = filter_layout, .bias_layout = kDense},
      [&](Direction pass) {
        std::vector<Algorithm> algorithms = products(pass);
        if (shape.bias && pass == Direction::kBackwardFilter) {
          for (Algorithm& algorithm : algorithms) {
            algorithm.workspace_bytes =
                std::max(algorithm.workspace_bytes, bias_gradient_bytes(shape.output));
          }
        }
        return algorithms;
      },
      mode);
  std::ranges::for_each(recipe.forward, set_engine_costs);
  std::ranges::for_each(recipe.backward, set_engine_costs);
  return recipe;
}

// In which order the product of the filter's gradient reads X and dY.
enum class GradientOperands : std::uint8_t { kAsTheLayer, kExchanged };

OpKernel filter_kernel(const ops::FilterShape& shape, std::unique_ptr<VendorOp> product,
                       GradientOperands gradient_operands, const KernelRequest& request) {
  const Direction pass = request.op.direction;
  const bool exchanged =
      pass == Direction::kBackwardFilter && gradient_operands == GradientOperands::kExchanged;
  return [op = within_algorithm(std::move(product), request), pass, exchanged, bias = shape.bias,
          output = shape.output](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    std::array<AddressRange, 2> reads{operands.reads[0], operands.reads[1]};
    if (exchanged) {
      std::swap(reads[0], reads[1]);
    }
    run_vendor_op(*op, reads, operands.writes[0], operands.workspace, launcher);
    if (bias && pass == Direction::kForward) {
      auto* const y = write_pointer<float>(operands, 0);
      launch_bias(launcher, output, y, read_pointer<float>(operands, 2), y);
    } else if (bias && pass == Direction::kBackwardFilter) {
      launch_bias_gradient(launcher, output, read_pointer<float>(operands, 1),
                           write_pointer<float>(operands, 1), operands.workspace);
    }
  };
}

// cuBLASLt's first choice within so much workspace. How much of it that one wants only a device can tell;
// what is counted may not depend on whether there is one.
struct ProductChoice {
  const char* name;
  std::uint64_t most_workspace_bytes;
};
constexpr std::array<ProductChoice, 2> kProductChoices{
    {{.name = "cublaslt", .most_workspace_bytes = std::uint64_t{4} << 20U},
     {.name = "cublaslt without workspace", .most_workspace_bytes = 0}}};

// In the order of the choices.
std::vector<Algorithm> product_algorithms(ProductPrecision precision) {
  std::vector<Algorithm> algorithms(kProductChoices.size());
  std::ranges::transform(kProductChoices, algorithms.begin(), [&](const ProductChoice& choice) {
    return Algorithm{.name = precision == ProductPrecision::kTf32 ? ops::in_tf32(choice.name) : choice.name,
                     .workspace_bytes = choice.most_workspace_bytes};
  });
  return algorithms;
}

const std::string& algorithm_of(const KernelRequest& request) {
  return request.op.algorithms.at(request.algorithm).name;
}

std::string engine_of(const KernelRequest& request) {
  return ops::without_precision(algorithm_of(request));
}

// The matrices are X (N x I), W (K x I) and Y (N x K).
MatrixProduct product_of(const ops::FilterShape& shape, Direction pass) {
  const std::int64_t samples = shape.input.dims[0];
  const std::int64_t inputs = shape.fan_in;
  const std::int64_t outputs = shape.filter[0];
  switch (pass) {
    case Direction::kForward:
      return {.rows = samples, .columns = outputs, .inner = inputs, .transposed_b = true};
    case Direction::kBackwardData:
      return {.rows = samples, .columns = inputs, .inner = outputs};
    default:
      return {.rows = outputs, .columns = inputs, .inner = samples, .transposed_a = true};
  }
}

}  // namespace

LayerRecipe make_recipe(const ConvolutionSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products) {
  const ops::FilterShape shape = ops::filter_shape(spec, types);
  const ops::Convolution convolution = ops::planar(ops::convolution_of(spec, shape.input, shape.output));
  return filter_recipe(
      shape, kDense,
      [&](Direction pass) { return products.convolutions(convolution, pass, shape.input.data_type); }, mode);
}

OpKernel make_kernel(const ConvolutionSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  const ops::FilterShape shape = ops::filter_shape(spec, ops::types_of(request.op));
  const EngineQuestion question{
      .convolution = ops::planar(ops::convolution_of(spec, shape.input, shape.output)),
      .direction = request.op.direction,
      .elements = shape.input.data_type};
  return filter_kernel(shape, library.convolution(question, engine_of(request)),
                       GradientOperands::kAsTheLayer, request);
}

LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products) {
  const ops::FilterShape shape = ops::filter_shape(spec, types);
  const ops::Convolution from_output = ops::planar(ops::convolution_of(spec, shape.input, shape.output));
  return filter_recipe(
      shape, kTransposedFilter,
      [&](Direction pass) {
        return products.convolutions(from_output, ops::exchanged(pass), shape.input.data_type);
      },
      mode);
}

OpKernel make_kernel(const TransposedConvolutionSpec& spec, const KernelRequest& request,
                     VendorLibrary& library) {
  const ops::FilterShape shape = ops::filter_shape(spec, ops::types_of(request.op));
  const EngineQuestion question{
      .convolution = ops::planar(ops::convolution_of(spec, shape.input, shape.output)),
      .direction = ops::exchanged(request.op.direction),
      .elements = shape.input.data_type};
  return filter_kernel(shape, library.convolution(question, engine_of(request)), GradientOperands::kExchanged,
                       request);
}

LayerRecipe make_recipe(const FullyConnectedSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products) {
  const ProductPrecision precision =
      ops::product_precision(types.inputs[0].data_type, products.matrix_products);
  return filter_recipe(
      ops::filter_shape(spec, types), kDense, [&](Direction) { return product_algorithms(precision); }, mode);
}

OpKernel make_kernel(const FullyConnectedSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  const ops::FilterShape shape = ops::filter_shape(spec, ops::types_of(request.op));
  MatrixProduct product = product_of(shape, request.op.direction);
  product.tf32 = ops::is_in_tf32(algorithm_of(request));
  product.most_workspace_bytes = kProductChoices.at(request.algorithm).most_workspace_bytes;
  return filter_kernel(shape, library.matrix_product(product), GradientOperands::kExchanged, request);
}

}  // namespace vdnn::cuda
