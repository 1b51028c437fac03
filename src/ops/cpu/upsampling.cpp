// Upsampling by whole factors (oneDNN's resampling). In the backward pass, each element of dX sums its part
// of dY, in an order that does not depend on the number of threads.

#include "src/ops/cpu/primitive_layer.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

dnnl::algorithm algorithm_of(UpsamplingMode mode) {
  return mode == UpsamplingMode::kNearest ? dnnl::algorithm::resampling_nearest
                                          : dnnl::algorithm::resampling_linear;
}

PrimitiveLayer primitive_layer(const Context& context, const UpsamplingSpec& spec, const LayerTypes& types,
                               Mode mode) {
  // The types are checked before oneDNN is called.
  const LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {});
  PrimitiveLayer layer{.input = dense_desc(types.inputs[0]),
                       .output = dense_desc(types.outputs[0]),
                       .forward = {},
                       .backward = {},
                       .saved = {},
                       .cost = recipe.forward[0].cost};
  const dnnl::primitive_attr attributes = scratchpad_attributes();
  const dnnl::resampling_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm_of(spec.mode), layer.input, layer.output}, attributes,
      context.engine);
  layer.forward = forward;
  if (mode == Mode::kTraining) {
    layer.backward = dnnl::resampling_backward::primitive_desc(
        {algorithm_of(spec.mode), layer.input, layer.output}, attributes, context.engine, forward);
  }
  return layer;
}

}  // namespace

LayerRecipe make_recipe(const Context& context, const UpsamplingSpec& spec, const LayerTypes& types,
                        Mode mode) {
  return primitive_layer_recipe(primitive_layer(context, spec, types, mode));
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const UpsamplingSpec& spec,
                                       const KernelRequest& request) {
  // The kernel is the same in training and inference.
  return primitive_layer_kernel(
      context, primitive_layer(context, spec, types_of(request.op), Mode::kTraining), request);
}

}  // namespace vdnn::cpu
