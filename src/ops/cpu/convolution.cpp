#include "src/ops/cpu/convolution.h"

#include <array>

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

dnnl::convolution_forward::primitive_desc forward(const Geometry& g, const dnnl::engine& engine,
                                                  const dnnl::memory::desc& filter) {
  const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_training,
                                             dnnl::algorithm::convolution_direct, g.input, filter, g.bias,
                                             g.output, g.stride, g.padding, g.padding);
  return {desc, scratchpad_attributes(), engine, /*allow_empty=*/true};
}

dnnl::primitive_desc backward_data(const Geometry& g, const dnnl::engine& engine,
                                   const dnnl::memory::desc& filter,
                                   const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_data::desc desc(dnnl::algorithm::convolution_direct, g.input, filter,
                                                   g.output, g.stride, g.padding, g.padding);
  return dnnl::convolution_backward_data::primitive_desc(desc, scratchpad_attributes(), engine, hint, true);
}

dnnl::primitive_desc backward_filter(const Geometry& g, const dnnl::engine& engine,
                                     const dnnl::memory::desc& filter,
                                     const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_weights::desc desc(dnnl::algorithm::convolution_direct, g.input, filter,
                                                      g.bias, g.output, g.stride, g.padding, g.padding);
  return dnnl::convolution_backward_weights::primitive_desc(desc, scratchpad_attributes(), engine, hint,
                                                            true);
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
  Geometry geometry{.input = dense_desc(input.dims),
                    .bias = dense_desc({spec.filters}),
                    .output = dense_desc(output.dims),
                    .stride = to_dnnl(spec.stride),
                    .padding = to_dnnl(spec.padding)};
  Dims filter = filter_dims(spec, input);
  const auto hint = forward(geometry, context.engine, any_desc(filter));
  return make_filter_layer(
      input, output, std::move(filter),
      [geometry = std::move(geometry), engine = context.engine, hint](
          Direction direction, const dnnl::memory::desc& wanted) -> dnnl::primitive_desc {
        switch (direction) {
          case Direction::kForward:
            return forward(geometry, engine, wanted);
          case Direction::kBackwardData:
            return backward_data(geometry, engine, wanted, hint);
          case Direction::kBackwardFilter:
            return backward_filter(geometry, engine, wanted, hint);
          case Direction::kUpdate:
            break;
        }
        return {};
      });
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
