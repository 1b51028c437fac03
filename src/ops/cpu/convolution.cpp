// Convolutions of one to three dimensions of space, through oneDNN's direct algorithms.

#include "src/ops/cpu/filter_passes.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

constexpr const char* kLayer = "convolution";

using Operation = WindowOperation<dnnl::convolution_forward, dnnl::convolution_backward_data,
                                  dnnl::convolution_backward_weights>;

void check(const ConvolutionSpec& spec, const LayerTypes& types) {
  require_one_to_one(types, kLayer);
  const TensorType& input = types.inputs[0];
  if (spec.filters < 1) {
    throw InvalidArgument("convolution: " + std::to_string(spec.filters) + " filters");
  }
  require_output(types.outputs[0],
                 window_output(input.dims, spec.filters,
                               {spec.kernel, spec.stride, spec.padding, spec.dilation}, kLayer),
                 kLayer);
  if (spec.groups < 1 || input.dims[1] % spec.groups != 0 || spec.filters % spec.groups != 0) {
    throw InvalidArgument("convolution: " + std::to_string(spec.groups) + " groups do not divide " +
                          std::to_string(input.dims[1]) + " channels and " + std::to_string(spec.filters) +
                          " filters");
  }
}

FilterShape shape_of(const ConvolutionSpec& spec, const LayerTypes& types) {
  FilterShape shape{.input = types.inputs[0],
                    .output = types.outputs[0],
                    .filter = {spec.filters, types.inputs[0].dims[1] / spec.groups},
                    .stride = spec.stride,
                    .padding = spec.padding,
                    .groups = spec.groups,
                    .bias = spec.bias};
  shape.filter.insert(shape.filter.end(), spec.kernel.begin(), spec.kernel.end());
  shape.fan_in = static_cast<std::int64_t>(shape.filter_type().elements()) / spec.filters;
  shape.multiply_adds = static_cast<double>(shape.output.elements()) * static_cast<double>(shape.fan_in);
  return shape;
}

dnnl::memory::dims dilation_of(const ConvolutionSpec& spec) {
  dnnl::memory::dims dilation(spec.kernel.size());
  for (std::size_t i = 0; i < spec.dilation.size(); ++i) {
    dilation[i] = spec.dilation[i] - 1;
  }
  return dilation;
}

}  // namespace

FilterLayer filter_layer(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types) {
  check(spec, types);
  FilterShape shape = shape_of(spec, types);
  const Operation operation{.algorithm = dnnl::algorithm::convolution_direct,
                            .input = dense_desc(shape.input.dims),
                            .bias = bias_desc(shape),
                            .output = dense_desc(shape.output.dims),
                            .stride = to_dnnl(spec.stride),
                            .dilation = dilation_of(spec),
                            .padding = to_dnnl(spec.padding)};
  return make_filter_layer(std::move(shape), passes_of(operation, context.engine));
}

LayerRecipe make_recipe(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types,
                        Mode mode) {
  return filter_layer_recipe(context, filter_layer(context, spec, types), mode);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConvolutionSpec& spec,
                                       const KernelRequest& request) {
  return filter_layer_kernel(context, filter_layer(context, spec, types_of(request.op)), request);
}

}  // namespace vdnn::cpu
