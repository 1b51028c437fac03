// Upsampling by whole factors (oneDNN's resampling). Backward gathers: each element of dX sums its own part
// of dY, in the same order whatever the number of threads.

#include "src/ops/cpu/primitive_layer.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

constexpr const char* kLayer = "upsampling";

dnnl::algorithm algorithm_of(UpsamplingMode mode) {
  return mode == UpsamplingMode::kNearest ? dnnl::algorithm::resampling_nearest
                                          : dnnl::algorithm::resampling_linear;
}

void check(const UpsamplingSpec& spec, const LayerTypes& types) {
  require_one_to_one(types, kLayer);
  Dims output = types.inputs[0].dims;
  const std::size_t rank = types.inputs[0].spatial_rank();
  if (rank < 1 || rank > 3 || spec.factors.size() != rank) {
    throw InvalidArgument(
        "upsampling: one to three dimensions of space expected and a factor for each, got " +
        to_string(output) + " and factors " + to_string(spec.factors));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    if (spec.factors[i] < 1) {
      throw InvalidArgument("upsampling: factor " + std::to_string(spec.factors[i]) + " must be positive");
    }
    output[i + 2] *= spec.factors[i];
  }
  require_output(types.outputs[0], output, kLayer);
}

Cost cost_of(const UpsamplingSpec& spec, const LayerTypes& types) {
  const TensorType& output = types.outputs[0];
  // A product and a sum for each of the neighbours that an output lies between, two a dimension.
  const int neighbours = spec.mode == UpsamplingMode::kLinear ? 1 << spec.factors.size() : 0;
  return {.flops = 2.0 * neighbours * static_cast<double>(output.elements()),
          .bytes = static_cast<double>(types.inputs[0].bytes()) + static_cast<double>(output.bytes())};
}

PrimitiveLayer primitive_layer(const Context& context, const UpsamplingSpec& spec, const LayerTypes& types,
                               Mode mode) {
  check(spec, types);
  PrimitiveLayer layer{.input = dense_desc(types.inputs[0].dims),
                       .output = dense_desc(types.outputs[0].dims),
                       .forward = {},
                       .backward = {},
                       .saved = {},
                       .cost = cost_of(spec, types)};
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
  // Computed alike in both modes.
  return primitive_layer_kernel(
      context, primitive_layer(context, spec, types_of(request.op), Mode::kTraining), request);
}

}  // namespace vdnn::cpu
