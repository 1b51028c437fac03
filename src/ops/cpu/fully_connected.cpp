#include "src/ops/cpu/fully_connected.h"

#include <array>
#include <utility>

#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

struct Geometry {
  dnnl::memory::desc input;
  dnnl::memory::desc bias;
  dnnl::memory::desc output;
};

dnnl::inner_product_forward::desc forward_desc(const Geometry& g, const dnnl::memory::desc& weights) {
  return {dnnl::prop_kind::forward_training, g.input, weights, g.bias, g.output};
}

// What the backward passes want to know of the forward pass.
dnnl::inner_product_forward::primitive_desc forward_hint(const Geometry& g, const dnnl::engine& engine,
                                                         const dnnl::memory::desc& weights) {
  return {forward_desc(g, weights), scratchpad_attributes(), engine, /*allow_empty=*/true};
}

void visit_forward(const Geometry& g, const dnnl::engine& engine, const dnnl::memory::desc& weights,
                   const VisitImplementation& visit) {
  visit_implementations<dnnl::inner_product_forward::primitive_desc>(forward_desc(g, weights), engine, visit);
}

void visit_backward_data(const Geometry& g, const dnnl::engine& engine, const dnnl::memory::desc& weights,
                         const VisitImplementation& visit) {
  const dnnl::inner_product_backward_data::desc desc(g.input, weights, g.output);
  visit_implementations<dnnl::inner_product_backward_data::primitive_desc>(
      desc, engine, visit, forward_hint(g, engine, any_desc(weights.dims())));
}

void visit_backward_weights(const Geometry& g, const dnnl::engine& engine, const dnnl::memory::desc& weights,
                            const VisitImplementation& visit) {
  const dnnl::inner_product_backward_weights::desc desc(g.input, weights, g.bias, g.output);
  visit_implementations<dnnl::inner_product_backward_weights::primitive_desc>(
      desc, engine, visit, forward_hint(g, engine, any_desc(weights.dims())));
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
  const Geometry geometry{
      .input = dense_desc(input.dims), .bias = dense_desc({spec.outputs}), .output = dense_desc(output.dims)};
  Dims weights = input.dims;
  weights[0] = spec.outputs;
  Passes passes{.forward = bind_pass(visit_forward, geometry, context.engine),
                .backward_data = bind_pass(visit_backward_data, geometry, context.engine),
                .backward_filter = bind_pass(visit_backward_weights, geometry, context.engine)};
  return make_filter_layer(input, output, std::move(weights), std::move(passes));
  // clang 14's analyzer loses what a moved std::function owns.
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)

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
