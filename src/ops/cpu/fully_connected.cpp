#include "src/ops/cpu/fully_connected.h"

#include <array>

#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

struct Geometry {
  dnnl::memory::desc input;
  dnnl::memory::desc bias;
  dnnl::memory::desc output;
};

dnnl::inner_product_forward::primitive_desc forward(const Geometry& g, const dnnl::engine& engine,
                                                    const dnnl::memory::desc& weights) {
  const dnnl::inner_product_forward::desc desc(dnnl::prop_kind::forward_training, g.input, weights, g.bias,
                                               g.output);
  return {desc, scratchpad_attributes(), engine, /*allow_empty=*/true};
}

dnnl::primitive_desc backward_data(const Geometry& g, const dnnl::engine& engine,
                                   const dnnl::memory::desc& weights,
                                   const dnnl::inner_product_forward::primitive_desc& hint) {
  const dnnl::inner_product_backward_data::desc desc(g.input, weights, g.output);
  return dnnl::inner_product_backward_data::primitive_desc(desc, scratchpad_attributes(), engine, hint, true);
}

dnnl::primitive_desc backward_weights(const Geometry& g, const dnnl::engine& engine,
                                      const dnnl::memory::desc& weights,
                                      const dnnl::inner_product_forward::primitive_desc& hint) {
  const dnnl::inner_product_backward_weights::desc desc(g.input, weights, g.bias, g.output);
  return dnnl::inner_product_backward_weights::primitive_desc(desc, scratchpad_attributes(), engine, hint,
                                                              true);
}

}  // namespace

FilterLayer filter_layer(const Context& context, const FullyConnectedSpec& spec, const TensorType& input,
                         const TensorType& output) {
  require_fp32_channels_last(std::array{input, output}, "fully connected");
  if (spec.outputs < 1 || input.dims.size() < 2) {
    throw InvalidArgument("fully connected: " + std::to_string(spec.outputs) + " outputs from " +
                          to_string(input.dims));
  }
  require_output(output, {input.dims[0], spec.outputs}, "fully connected");
  Geometry geometry{
      .input = dense_desc(input.dims), .bias = dense_desc({spec.outputs}), .output = dense_desc(output.dims)};
  Dims weights = input.dims;
  weights[0] = spec.outputs;
  const auto hint = forward(geometry, context.engine, any_desc(weights));
  return make_filter_layer(
      input, output, std::move(weights),
      [geometry = std::move(geometry), engine = context.engine, hint](
          Direction direction, const dnnl::memory::desc& wanted) -> dnnl::primitive_desc {
        switch (direction) {
          case Direction::kForward:
            return forward(geometry, engine, wanted);
          case Direction::kBackwardData:
            return backward_data(geometry, engine, wanted, hint);
          case Direction::kBackwardFilter:
            return backward_weights(geometry, engine, wanted, hint);
          case Direction::kUpdate:
            break;
        }
        return {};
      });
}

LayerRecipe make_recipe(const Context& context, const FullyConnectedSpec& spec, const LayerTypes& types,
                        Mode mode) {
  require_count(types.inputs, 1, "inputs of a fully connected layer");
  require_count(types.outputs, 1, "outputs of a fully connected layer");
  return filter_layer_recipe(context, filter_layer(context, spec, types.inputs[0], types.outputs[0]), mode);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const FullyConnectedSpec& spec,
                                       const KernelRequest& request) {
  return filter_layer_kernel(
      context, filter_layer(context, spec, request.op.layer_inputs[0], request.op.layer_outputs[0]), request);
}

}  // namespace vdnn::cpu
