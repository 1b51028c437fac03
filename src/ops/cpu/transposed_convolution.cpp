// Transposed convolutions in one to three spatial dimensions (oneDNN's deconvolution).

#include "src/ops/cpu/filter_passes.h"
#include "src/ops/cpu/recipes.h"

namespace vdnn::cpu {

namespace {

using Operation = WindowOperation<dnnl::deconvolution_forward, dnnl::deconvolution_backward_data,
                                  dnnl::deconvolution_backward_weights>;

}  // namespace

FilterLayer filter_layer(const Context& context, const TransposedConvolutionSpec& spec,
                         const LayerTypes& types) {
  FilterShape shape = ops::filter_shape(spec, types);
  const Operation operation{.algorithm = dnnl::algorithm::deconvolution_direct,
                            .input = dense_desc(shape.input),
                            .bias = bias_desc(shape),
                            .output = dense_desc(shape.output),
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
