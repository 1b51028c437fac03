// Fully connected layers (oneDNN's inner product). If the input has spatial dimensions, the weights are a
// filter as large as the input, so that nothing is flattened or copied.

#include "src/ops/cpu/filter_passes.h"
#include "src/ops/cpu/recipes.h"

namespace vdnn::cpu {

namespace {

struct Operation {
  using Forward = dnnl::inner_product_forward;
  using BackwardData = dnnl::inner_product_backward_data;
  using BackwardFilter = dnnl::inner_product_backward_weights;

  dnnl::memory::desc input;
  dnnl::memory::desc bias;  // a zero descriptor if there is no bias
  dnnl::memory::desc output;

  Forward::desc forward(const dnnl::memory::desc& weights) const {
    return {dnnl::prop_kind::forward_training, input, weights, bias, output};
  }
  BackwardData::desc backward_data(const dnnl::memory::desc& weights) const {
    return {input, weights, output};
  }
  BackwardFilter::desc backward_filter(const dnnl::memory::desc& weights) const {
    return {input, weights, bias, output};
  }
};

}  // namespace

FilterLayer filter_layer(const Context& context, const FullyConnectedSpec& spec, const LayerTypes& types) {
  FilterShape shape = ops::filter_shape(spec, types);
  const Operation operation{
      .input = dense_desc(shape.input), .bias = bias_desc(shape), .output = dense_desc(shape.output)};
  return make_filter_layer(std::move(shape), passes_of(operation, context.engine));
}

LayerRecipe make_recipe(const Context& context, const FullyConnectedSpec& spec, const LayerTypes& types,
                        Mode mode) {
  return filter_layer_recipe(context, filter_layer(context, spec, types), mode);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const FullyConnectedSpec& spec,
                                       const KernelRequest& request) {
  return filter_layer_kernel(context, filter_layer(context, spec, types_of(request.op)), request);
}

}  // namespace vdnn::cpu
