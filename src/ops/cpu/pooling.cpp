// Max pooling saves the index of each window's largest element in oneDNN's format (one byte, or four for
// large windows), so that backward needs neither X nor Y. Average pooling does not count the padding.

#include "src/ops/cpu/primitive_layer.h"
#include "src/ops/cpu/recipes.h"

namespace vdnn::cpu {

namespace {

dnnl::algorithm algorithm_of(PoolingMode mode) {
  return mode == PoolingMode::kMax ? dnnl::algorithm::pooling_max
                                   : dnnl::algorithm::pooling_avg_exclude_padding;
}

PrimitiveLayer primitive_layer(const Context& context, const PoolingSpec& spec, const LayerTypes& types,
                               Mode mode) {
  ops::require_pooling(spec, types);
  PrimitiveLayer layer{
      .input = dense_desc(types.inputs[0]),
      .output = dense_desc(types.outputs[0]),
      .forward = {},
      .backward = {},
      .saved = "indices",
      .cost = {.flops = static_cast<double>(types.outputs[0].elements()) * window_elements(spec.kernel),
               .bytes = static_cast<double>(types.inputs[0].bytes()) +
                        static_cast<double>(types.outputs[0].bytes())}};
  const dnnl::memory::dims kernel = to_dnnl(spec.kernel);
  const dnnl::memory::dims stride = to_dnnl(spec.stride);
  const dnnl::memory::dims padding = to_dnnl(spec.padding);
  const dnnl::primitive_attr attributes = scratchpad_attributes();
  const auto forward = make_forward(mode, [&](dnnl::prop_kind kind) {
    const dnnl::pooling_forward::desc desc(kind, algorithm_of(spec.mode), layer.input, layer.output, stride,
                                           kernel, padding, padding);
    return dnnl::pooling_forward::primitive_desc(desc, attributes, context.engine);
  });
  layer.forward = forward;
  if (mode == Mode::kTraining) {
    const dnnl::pooling_backward::desc desc(algorithm_of(spec.mode), layer.input, layer.output, stride,
                                            kernel, padding, padding);
    layer.backward = dnnl::pooling_backward::primitive_desc(desc, attributes, context.engine, forward);
  }
  return layer;
}

}  // namespace

LayerRecipe make_recipe(const Context& context, const PoolingSpec& spec, const LayerTypes& types, Mode mode) {
  return primitive_layer_recipe(primitive_layer(context, spec, types, mode));
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const PoolingSpec& spec,
                                       const KernelRequest& request) {
  return primitive_layer_kernel(
      context, primitive_layer(context, spec, types_of(request.op), mode_of(request)), request);
}

}  // namespace vdnn::cpu
