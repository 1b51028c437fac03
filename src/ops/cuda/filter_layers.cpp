// Convolutions, transposed convolutions and fully connected layers. A library computes the product; our own
// kernels add the bias and sum its gradient.

#include <algorithm>
#include <array>

#include "src/ops/convolution.h"
#include "src/ops/cuda/bias.h"
#include "src/ops/cuda/conversions.h"
#include "src/ops/cuda/engine_costs.h"
#include "src/ops/cuda/filter_storage.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/vendor_kernel.h"
#include "src/ops/cuda/workspace.h"
#include "src/ops/filter_layer.h"
#include "src/ops/product_names.h"

namespace vdnn::cuda {

namespace {

// How a vendor's library computes the gradient of a filter.
struct FilterGradient {
  bool reads_dy_first = false;
  // The type that the vendor's op writes. cuDNN has no engine that reads narrow maps and writes fp32, so a
  // narrow result is written to the op's workspace. A kernel then widens it into the fp32 gradient.
  DataType written = DataType::kF32;
};

AddressRange narrow_gradient(const ops::FilterShape& shape, const FilterGradient& gradient,
                             std::uint64_t begin) {
  const TensorType type{.data_type = gradient.written, .dims = shape.filter};
  return {.begin = begin, .bytes = is_narrow(gradient.written) ? type.bytes() : 0};
}

// Bytes of the narrow gradient, which begins the op's workspace and is followed by the library's part; 0 if
// no narrow gradient is written.
std::uint64_t narrow_gradient_bytes(const ops::FilterShape& shape, const FilterGradient& gradient) {
  return round_up(narrow_gradient(shape, gradient, 0).bytes, kWorkspaceAlignment);
}

// The bias's gradient is computed after the filter's gradient and uses the same workspace.
void add_workspace(const ops::FilterShape& shape, const FilterGradient& gradient,
                   std::vector<Algorithm>& algorithms) {
  for (Algorithm& algorithm : algorithms) {
    algorithm.workspace_bytes += narrow_gradient_bytes(shape, gradient);
    if (shape.bias) {
      algorithm.workspace_bytes = std::max(algorithm.workspace_bytes, bias_gradient_bytes(shape.output));
    }
  }
}

LayerRecipe filter_recipe(const ops::FilterShape& shape, const char* filter_layout,
                          const FilterGradient& gradient, const ops::PassAlgorithms& products, Mode mode) {
  LayerRecipe recipe = ops::filter_layer_recipe(
      shape,
      {.filter_bytes = shape.filter_type().bytes(), .filter_layout = filter_layout, .bias_layout = kDense},
      [&](Direction pass) {
        std::vector<Algorithm> algorithms = products(pass);
        if (pass == Direction::kBackwardFilter) {
          add_workspace(shape, gradient, algorithms);
        }
        return algorithms;
      },
      mode);
  std::ranges::for_each(recipe.forward, set_engine_costs);
  std::ranges::for_each(recipe.backward, set_engine_costs);
  return recipe;
}

// The kernel of the forward pass or of the data gradient.
OpKernel map_kernel(const ops::FilterShape& shape, std::unique_ptr<VendorOp> product,
                    const KernelRequest& request) {
  const bool adds_bias = shape.bias && request.op.direction == Direction::kForward;
  return [op = within_algorithm(std::move(product), request), adds_bias, output = shape.output](
             const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    run_vendor_op(*op, operands.reads.first(2), operands.writes[0], operands.workspace, launcher);
    if (adds_bias) {
      auto* const y = write_pointer<void>(operands, 0);
      launch_bias(launcher, output, y, read_pointer<float>(operands, 2), y);
    }
  };
}

OpKernel gradient_kernel(const ops::FilterShape& shape, const FilterGradient& gradient,
                         std::unique_ptr<VendorOp> product, const KernelRequest& request) {
  const std::uint64_t narrow_bytes = narrow_gradient_bytes(shape, gradient);
  return [op = within_algorithm(std::move(product), request, narrow_bytes), shape, gradient, narrow_bytes](
             const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    std::array<AddressRange, 2> reads{operands.reads[0], operands.reads[1]};
    if (gradient.reads_dy_first) {
      std::swap(reads[0], reads[1]);
    }
    const AddressRange& workspace = operands.workspace;
    const AddressRange narrow = narrow_gradient(shape, gradient, workspace.begin);
    const AddressRange& written = narrow_bytes > 0 ? narrow : operands.writes[0];
    run_vendor_op(*op, reads, written,
                  {.begin = workspace.begin + narrow_bytes, .bytes = workspace.bytes - narrow_bytes},
                  launcher);
    if (narrow_bytes > 0) {
      launch_conversion(launcher, {gradient.written, narrow.begin},
                        {DataType::kF32, operands.writes[0].begin}, shape.filter_type().elements());
    }
    if (shape.bias) {
      launch_bias_gradient(launcher, shape.output, read_pointer<void>(operands, 1),
                           write_pointer<float>(operands, 1), workspace);
    }
  };
}

OpKernel filter_kernel(const ops::FilterShape& shape, const FilterGradient& gradient,
                       std::unique_ptr<VendorOp> product, const KernelRequest& request) {
  return request.op.direction == Direction::kBackwardFilter
             ? gradient_kernel(shape, gradient, std::move(product), request)
             : map_kernel(shape, std::move(product), request);
}

// An algorithm of plans: cuBLASLt's first choice among the methods that use at most this workspace. How much
// of it the choice uses is known only on a device, and plans must not depend on a device, so they count all
// of it.
struct ProductChoice {
  const char* name;
  std::uint64_t most_workspace_bytes;
};
constexpr std::array<ProductChoice, 2> kProductChoices{
    {{.name = "cublaslt", .most_workspace_bytes = std::uint64_t{4} << 20U},
     {.name = "cublaslt without workspace", .most_workspace_bytes = 0}}};

// One algorithm per element of kProductChoices, in the same order.
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

FilterGradient of_convolution(const ops::FilterShape& shape) {
  return {.written = shape.input.data_type};
}

// A transposed convolution is computed as a convolution whose input has the shape of the layer's output. In
// its filter gradient, dY therefore takes the place of X, which cuDNN's op reads first.
FilterGradient of_transposed_convolution(const ops::FilterShape& shape) {
  return {.reads_dy_first = true, .written = shape.input.data_type};
}

// cuBLASLt writes fp32 for factors of any type.
constexpr FilterGradient kOfFullyConnected{.reads_dy_first = true};

// The matrices are X (N x I), W (K x I) and Y (N x K).
MatrixProduct shape_of_product(const ops::FilterShape& shape, Direction pass) {
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

MatrixProduct product_of(const ops::FilterShape& shape, const KernelRequest& request) {
  MatrixProduct product = shape_of_product(shape, request.op.direction);
  product.tf32 = ops::is_in_tf32(algorithm_of(request));
  product.factors = shape.input.data_type;
  product.result =
      request.op.direction == Direction::kBackwardFilter ? kOfFullyConnected.written : shape.input.data_type;
  product.most_workspace_bytes = kProductChoices.at(request.algorithm).most_workspace_bytes;
  return product;
}

}  // namespace

LayerRecipe make_recipe(const ConvolutionSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products) {
  const ops::FilterShape shape = ops::filter_shape(spec, types);
  const ops::Convolution convolution = ops::planar(ops::convolution_of(spec, shape.input, shape.output));
  return filter_recipe(
      shape, kDense, of_convolution(shape),
      [&](Direction pass) { return products.convolutions(convolution, pass, shape.input.data_type); }, mode);
}

OpKernel make_kernel(const ConvolutionSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  const ops::FilterShape shape = ops::filter_shape(spec, ops::types_of(request.op));
  const EngineQuestion question{
      .convolution = ops::planar(ops::convolution_of(spec, shape.input, shape.output)),
      .direction = request.op.direction,
      .elements = shape.input.data_type};
  return filter_kernel(shape, of_convolution(shape), library.convolution(question, engine_of(request)),
                       request);
}

LayerRecipe make_recipe(const TransposedConvolutionSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products) {
  const ops::FilterShape shape = ops::filter_shape(spec, types);
  const ops::Convolution from_output = ops::planar(ops::convolution_of(spec, shape.input, shape.output));
  return filter_recipe(
      shape, kTransposedFilter, of_transposed_convolution(shape),
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
  return filter_kernel(shape, of_transposed_convolution(shape),
                       library.convolution(question, engine_of(request)), request);
}

LayerRecipe make_recipe(const FullyConnectedSpec& spec, const LayerTypes& types, Mode mode,
                        const ProductAlgorithms& products) {
  const ProductPrecision precision =
      ops::product_precision(types.inputs[0].data_type, products.matrix_products);
  return filter_recipe(
      ops::filter_shape(spec, types), kDense, kOfFullyConnected,
      [&](Direction) { return product_algorithms(precision); }, mode);
}

OpKernel make_kernel(const FullyConnectedSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  const ops::FilterShape shape = ops::filter_shape(spec, ops::types_of(request.op));
  return filter_kernel(shape, kOfFullyConnected, library.matrix_product(product_of(shape, request)), request);
}

}  // namespace vdnn::cuda
