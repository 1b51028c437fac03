// Max pooling saves the index of each window's largest element as oneDNN packs it (a byte, or four where the
// window is large), so that backward needs neither X nor Y. Averages do not count the padding.

#include <array>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/primitive_sequence.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

constexpr const char* kLayer = "pooling";

dnnl::algorithm algorithm_of(PoolingMode mode) {
  return mode == PoolingMode::kMax ? dnnl::algorithm::pooling_max
                                   : dnnl::algorithm::pooling_avg_exclude_padding;
}

using Forward = dnnl::pooling_forward::primitive_desc;

Forward forward(const Context& context, const PoolingSpec& spec, const LayerTypes& types, Mode mode) {
  const dnnl::memory::dims padding = to_dnnl(spec.padding);
  // Averages save nothing and are computed alike in both modes.
  const bool training = mode == Mode::kTraining || spec.mode == PoolingMode::kAverage;
  const dnnl::pooling_forward::desc desc(
      training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
      algorithm_of(spec.mode), dense_desc(types.inputs[0].dims), dense_desc(types.outputs[0].dims),
      to_dnnl(spec.stride), to_dnnl(spec.kernel), padding, padding);
  return {desc, scratchpad_attributes(), context.engine};
}

dnnl::primitive_desc backward(const Context& context, const PoolingSpec& spec, const LayerTypes& types,
                              const Forward& hint) {
  const dnnl::memory::dims padding = to_dnnl(spec.padding);
  const dnnl::pooling_backward::desc desc(algorithm_of(spec.mode), dense_desc(types.inputs[0].dims),
                                          dense_desc(types.outputs[0].dims), to_dnnl(spec.stride),
                                          to_dnnl(spec.kernel), padding, padding);
  return dnnl::pooling_backward::primitive_desc(desc, scratchpad_attributes(), context.engine, hint);
}

bool saves_indices(const Forward& primitive) {
  return primitive.workspace_desc().get_size() > 0;
}

std::vector<Implementation> forward_implementations(const LayerTypes& types, const Forward& primitive) {
  PrimitiveSequence sequence;
  std::vector<PrimitiveSequence::Argument> arguments{
      {DNNL_ARG_SRC, sequence.read(0, dense_desc(types.inputs[0].dims))},
      {DNNL_ARG_DST, sequence.write(0, dense_desc(types.outputs[0].dims))}};
  if (saves_indices(primitive)) {
    arguments.push_back({DNNL_ARG_WORKSPACE, sequence.write(1, primitive.workspace_desc())});
  }
  sequence.append(primitive, std::move(arguments));
  return {{.name = primitive.impl_info_str(), .sequence = std::move(sequence)}};
}

std::vector<Implementation> backward_implementations(const Context& context, const PoolingSpec& spec,
                                                     const LayerTypes& types, const Forward& made_by) {
  const dnnl::primitive_desc primitive = backward(context, spec, types, made_by);
  PrimitiveSequence sequence;
  std::vector<PrimitiveSequence::Argument> arguments{
      {DNNL_ARG_DIFF_DST, sequence.read(0, dense_desc(types.outputs[0].dims))},
      {DNNL_ARG_DIFF_SRC, sequence.write(0, dense_desc(types.inputs[0].dims))}};
  if (saves_indices(made_by)) {
    arguments.push_back({DNNL_ARG_WORKSPACE, sequence.read(1, made_by.workspace_desc())});
  }
  sequence.append(primitive, std::move(arguments));
  return {{.name = primitive.impl_info_str(), .sequence = std::move(sequence)}};
}

void check(const PoolingSpec& spec, const LayerTypes& types) {
  require_one_to_one(types, kLayer);
  const Dims& input = types.inputs[0].dims;
  const std::int64_t channels = input.size() > 1 ? input[1] : 0;
  require_output(types.outputs[0],
                 window_output(input, channels, {spec.kernel, spec.stride, spec.padding, {}}, kLayer),
                 kLayer);
}

Cost cost_of(const PoolingSpec& spec, const LayerTypes& types, std::uint64_t saved_bytes) {
  return {.flops = static_cast<double>(types.outputs[0].elements()) * window_elements(spec.kernel),
          .bytes = static_cast<double>(types.inputs[0].bytes()) +
                   static_cast<double>(types.outputs[0].bytes()) + static_cast<double>(saved_bytes)};
}

}  // namespace

LayerRecipe make_recipe(const Context& context, const PoolingSpec& spec, const LayerTypes& types, Mode mode) {
  using enum OperandRole;
  check(spec, types);
  const Forward primitive = forward(context, spec, types, mode);
  const std::uint64_t saved_bytes = primitive.workspace_desc().get_size();
  const Cost cost = cost_of(spec, types, saved_bytes);
  LayerRecipe recipe;
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {{kInput, 0}},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = algorithms_of(forward_implementations(types, primitive)),
                     .cost = cost}};
  if (mode == Mode::kInference) {
    return recipe;
  }
  recipe.backward = {{.direction = Direction::kBackwardData,
                      .reads = {{kOutputGradient, 0}},
                      .writes = {{kInputGradient, 0}},
                      .may_overwrite = {},
                      .algorithms = algorithms_of(backward_implementations(context, spec, types, primitive)),
                      .cost = cost}};
  if (saves_indices(primitive)) {
    // Bytes, since oneDNN alone knows what is in them.
    recipe.saved = {{.name = "indices",
                     .type = {.data_type = DataType::kU8, .dims = {static_cast<std::int64_t>(saved_bytes)}}}};
    recipe.forward[0].writes.push_back({kSaved, 0});
    recipe.backward[0].reads.push_back({kSaved, 0});
  }
  return recipe;
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const PoolingSpec& spec,
                                       const KernelRequest& request) {
  const LayerTypes types = types_of(request.op);
  check(spec, types);
  if (request.op.direction == Direction::kForward) {
    // An op of inference has nowhere to save indices.
    const Mode mode = request.op.writes.size() > 1 ? Mode::kTraining : Mode::kInference;
    return build_requested(context, forward_implementations(types, forward(context, spec, types, mode)),
                           request);
  }
  const Forward made_by = forward(context, spec, types, Mode::kTraining);
  return build_requested(context, backward_implementations(context, spec, types, made_by), request);
}

}  // namespace vdnn::cpu
