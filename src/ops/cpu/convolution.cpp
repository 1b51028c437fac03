// Convolutions in one to three spatial dimensions, through oneDNN's direct algorithms.

#include "src/ops/cpu/filter_passes.h"
#include "src/ops/cpu/recipes.h"

namespace vdnn::cpu {

namespace {

using Operation = WindowOperation<dnnl::convolution_forward, dnnl::convolution_backward_data,
                                  dnnl::convolution_backward_weights>;

dnnl::memory::dims dilation_of(const ConvolutionSpec& spec) {
  dnnl::memory::dims dilation(spec.kernel.size());
  for (std::size_t i = 0; i < spec.dilation.size(); ++i) {
    dilation[i] = spec.dilation[i] - 1;
  }
  return dilation;
}

}  // namespace

FilterLayer filter_layer(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types) {
  FilterShape shape = ops::filter_shape(spec, types);
  const Operation operation{.algorithm = dnnl::algorithm::convolution_direct,
                            .input = dense_desc(shape.input),
                            .bias = bias_desc(shape),
                            .output = dense_desc(shape.output),
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
