// Transposed convolutions of one to three dimensions of space (oneDNN's deconvolution).

#include <algorithm>

#include "src/ops/cpu/filter_passes.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

constexpr const char* kLayer = "transposed convolution";

using Operation = WindowOperation<dnnl::deconvolution_forward, dnnl::deconvolution_backward_data,
                                  dnnl::deconvolution_backward_weights>;

void check(const TransposedConvolutionSpec& spec, const LayerTypes& types) {
  require_one_to_one(types, kLayer);
  const Dims& input = types.inputs[0].dims;
  if (spec.filters < 1) {
    throw InvalidArgument("transposed convolution: " + std::to_string(spec.filters) + " filters");
  }
  require_window(input, {spec.kernel, spec.stride, spec.padding, {}}, kLayer);
  Dims output{input[0], spec.filters};
  for (std::size_t i = 0; i < spec.kernel.size(); ++i) {
    output.push_back((input[i + 2] - 1) * spec.stride[i] - 2 * spec.padding[i] + spec.kernel[i]);
  }
  require_output(types.outputs[0], output, kLayer);
}

FilterShape shape_of(const TransposedConvolutionSpec& spec, const LayerTypes& types) {
  FilterShape shape{.input = types.inputs[0],
                    .output = types.outputs[0],
                    .filter = {spec.filters, types.inputs[0].dims[1]},
                    .stride = spec.stride,
                    .padding = spec.padding,
                    .bias = spec.bias};
  shape.filter.insert(shape.filter.end(), spec.kernel.begin(), spec.kernel.end());
  const double reach = static_cast<double>(spec.filters) * window_elements(spec.kernel);
  shape.multiply_adds = static_cast<double>(shape.input.elements()) * reach;
  // Windows begin a stride apart, so that many fewer of them meet in one output.
  shape.fan_in = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(shape.filter[1]) * window_elements(spec.kernel) /
                                   window_elements(spec.stride)));
  return shape;
}

}  // namespace

FilterLayer filter_layer(const Context& context, const TransposedConvolutionSpec& spec,
                         const LayerTypes& types) {
  check(spec, types);
  FilterShape shape = shape_of(spec, types);
  const Operation operation{.algorithm = dnnl::algorithm::deconvolution_direct,
                            .input = dense_desc(shape.input.dims),
                            .bias = bias_desc(shape),
                            .output = dense_desc(shape.output.dims),
                            .stride = to_dnnl(spec.stride),
                            .dilation = dnnl::memory::dims(spec.kernel.size()),
                            .padding = to_dnnl(spec.padding)};
  return make_filter_layer(std::move(shape), passes_of(operation, context.engine));
}

LayerRecipe make_recipe(const Context& context, const TransposedConvolutionSpec& spec,
                        const LayerTypes& types, Mode mode) {
  return filter_layer_recipe(context, filter_layer(context, spec, types), mode);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const TransposedConvolutionSpec& spec,
                                       const KernelRequest& request) {
  return filter_layer_kernel(context, filter_layer(context, spec, types_of(request.op)), request);
}

}  // namespace vdnn::cpu
