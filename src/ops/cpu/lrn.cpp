// Local response normalisation across channels. The operation does not depend on how places are arranged.
// oneDNN 2.6 has fast implementations only for planes, so all places are passed as one row of a plane. The
// backward pass of these implementations is wrong for a `size` of 7 or more if there are more than 16
// channels and their number is not a multiple of 16. For a `size` of 1 the backward pass cannot be created.
// So the fast implementations are used only for sizes 3 and 5, which networks have.

#include <string>

#include "src/ops/cpu/primitive_layer.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

constexpr const char* kLayer = "local response normalisation";
constexpr dnnl::algorithm kAlgorithm = dnnl::algorithm::lrn_across_channels;

bool may_be_fast(const LrnSpec& spec) {
  return spec.size == 3 || spec.size == 5;
}

dnnl::memory::desc rows_desc(const TensorType& type) {
  const std::int64_t batch = type.dims[0];
  const std::int64_t channels = type.dims[1];
  const std::int64_t pixels = static_cast<std::int64_t>(type.elements()) / batch / channels;
  return dense_desc({.data_type = type.data_type, .dims = {batch, channels, 1, pixels}});
}

PrimitiveLayer primitive_layer(const Context& context, const LrnSpec& spec, const LayerTypes& types,
                               Mode mode) {
  ops::require_lrn(spec, types);
  const TensorType& type = types.inputs[0];
  const dnnl::memory::desc rows = rows_desc(type);
  const dnnl::primitive_attr attributes = scratchpad_attributes();
  PrimitiveLayer layer{
      .input = rows,
      .output = rows,
      .forward = {},
      .backward = {},
      .backward_reads_input = true,
      .saved = "norms",
      // The sum of squares, and a power, which counts as ten operations.
      .cost = {.flops = static_cast<double>(type.elements()) * (2 * static_cast<double>(spec.size) + 10),
               .bytes = 2 * static_cast<double>(type.bytes())}};
  const auto forward = make_forward(mode, [&](dnnl::prop_kind kind) {
    const dnnl::lrn_forward::desc desc(kind, kAlgorithm, rows, spec.size, spec.alpha, spec.beta, spec.k);
    dnnl::lrn_forward::primitive_desc primitive(desc, attributes, context.engine);
    // If backward needs oneDNN's reference, forward uses it, too: the fast backward implementations read
    // values that forward saves, whereas the reference saves and reads none.
    while (!may_be_fast(spec) && !is_reference(primitive)) {
      if (!primitive.next_impl()) {
        throw InvalidArgument(std::string(kLayer) + ": oneDNN has no reference of size " +
                              std::to_string(spec.size));
      }
    }
    return primitive;
  });
  layer.forward = forward;
  if (mode == Mode::kTraining) {
    const dnnl::lrn_backward::desc desc(kAlgorithm, rows, rows, spec.size, spec.alpha, spec.beta, spec.k);
    layer.backward = dnnl::lrn_backward::primitive_desc(desc, attributes, context.engine, forward);
  }
  return layer;
}

}  // namespace

LayerRecipe make_recipe(const Context& context, const LrnSpec& spec, const LayerTypes& types, Mode mode) {
  return primitive_layer_recipe(primitive_layer(context, spec, types, mode));
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const LrnSpec& spec,
                                       const KernelRequest& request) {
  return primitive_layer_kernel(
      context, primitive_layer(context, spec, types_of(request.op), mode_of(request)), request);
}

}  // namespace vdnn::cpu
