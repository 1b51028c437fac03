#include "src/ops/cpu/convolution.h"

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
  dnnl::memory::dims stride;
  dnnl::memory::dims padding;
};

dnnl::convolution_forward::desc forward_desc(const Geometry& g, const dnnl::memory::desc& filter) {
  return {dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_direct,
          g.input,
          filter,
          g.bias,
          g.output,
          g.stride,
          g.padding,
          g.padding};
}

// What the backward passes want to know of the forward pass.
dnnl::convolution_forward::primitive_desc forward_hint(const Geometry& g, const dnnl::engine& engine,
                                                       const dnnl::memory::desc& filter) {
  return {forward_desc(g, filter), scratchpad_attributes(), engine, /*allow_empty=*/true};
}

void visit_forward(const Geometry& g, const dnnl::engine& engine, const dnnl::memory::desc& filter,
                   const VisitImplementation& visit) {
  visit_implementations<dnnl::convolution_forward::primitive_desc>(forward_desc(g, filter), engine, visit);
}

void visit_backward_data(const Geometry& g, const dnnl::engine& engine, const dnnl::memory::desc& filter,
                         const VisitImplementation& visit) {
  const dnnl::convolution_backward_data::desc desc(dnnl::algorithm::convolution_direct, g.input, filter,
                                                   g.output, g.stride, g.padding, g.padding);
  visit_implementations<dnnl::convolution_backward_data::primitive_desc>(
      desc, engine, visit, forward_hint(g, engine, any_desc(filter.dims())));
}

void visit_backward_filter(const Geometry& g, const dnnl::engine& engine, const dnnl::memory::desc& filter,
                           const VisitImplementation& visit) {
  const dnnl::convolution_backward_weights::desc desc(dnnl::algorithm::convolution_direct, g.input, filter,
                                                      g.bias, g.output, g.stride, g.padding, g.padding);
  visit_implementations<dnnl::convolution_backward_weights::primitive_desc>(
      desc, engine, visit, forward_hint(g, engine, any_desc(filter.dims())));
}

Dims filter_dims(const ConvolutionSpec& spec, const TensorType& input) {
  Dims filter{spec.filters, input.dims[1]};
  filter.insert(filter.end(), spec.kernel.begin(), spec.kernel.end());
  return filter;
}

}  // namespace

FilterLayer filter_layer(const Context& context, const ConvolutionSpec& spec, const TensorType& input,
                         const TensorType& output) {
  require_fp32_channels_last(std::array{input, output}, "convolution");
  if (spec.filters < 1) {
    throw InvalidArgument("convolution: " + std::to_string(spec.filters) + " filters");
  }
  require_output(
      output,
      window_output(input.dims, spec.filters, {spec.kernel, spec.stride, spec.padding}, "convolution"),
      "convolution");
  const Geometry geometry{.input = dense_desc(input.dims),
                          .bias = dense_desc({spec.filters}),
                          .output = dense_desc(output.dims),
                          .stride = to_dnnl(spec.stride),
                          .padding = to_dnnl(spec.padding)};
  Passes passes{.forward = bind_pass(visit_forward, geometry, context.engine),
                .backward_data = bind_pass(visit_backward_data, geometry, context.engine),
                .backward_filter = bind_pass(visit_backward_filter, geometry, context.engine)};
  return make_filter_layer(input, output, filter_dims(spec, input), std::move(passes));
}

LayerRecipe make_recipe(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types,
                        Mode mode) {
  require_count(types.inputs, 1, "inputs of a convolution");
  require_count(types.outputs, 1, "outputs of a convolution");
  return filter_layer_recipe(context, filter_layer(context, spec, types.inputs[0], types.outputs[0]), mode);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConvolutionSpec& spec,
                                       const KernelRequest& request) {
  return filter_layer_kernel(
      context, filter_layer(context, spec, request.op.layer_inputs[0], request.op.layer_outputs[0]), request);
}

}  // namespace vdnn::cpu
