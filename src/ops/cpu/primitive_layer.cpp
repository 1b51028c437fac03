#include "src/ops/cpu/primitive_layer.h"

namespace vdnn::cpu {

namespace {

dnnl::memory::desc saved_desc(const PrimitiveLayer& layer) {
  return layer.forward.query_md(dnnl::query::workspace_md);
}

bool saves(const PrimitiveLayer& layer) {
  return saved_desc(layer).get_size() > 0;
}

std::vector<Implementation> forward_implementations(const PrimitiveLayer& layer) {
  PrimitiveSequence sequence;
  std::vector<PrimitiveSequence::Argument> arguments{{DNNL_ARG_SRC, sequence.read(0, layer.input)},
                                                     {DNNL_ARG_DST, sequence.write(0, layer.output)}};
  if (saves(layer)) {
    arguments.push_back({DNNL_ARG_WORKSPACE, sequence.write(1, saved_desc(layer))});
  }
  sequence.append(layer.forward, std::move(arguments));
  return {{.name = layer.forward.impl_info_str(), .sequence = std::move(sequence)}};
}

std::vector<Implementation> backward_implementations(const PrimitiveLayer& layer) {
  PrimitiveSequence sequence;
  std::uint32_t reads = 0;
  std::vector<PrimitiveSequence::Argument> arguments{
      {DNNL_ARG_DIFF_DST, sequence.read(reads++, layer.output)},
      {DNNL_ARG_DIFF_SRC, sequence.write(0, layer.input)}};
  if (layer.backward_reads_input) {
    arguments.push_back({DNNL_ARG_SRC, sequence.read(reads++, layer.input)});
  }
  if (saves(layer)) {
    arguments.push_back({DNNL_ARG_WORKSPACE, sequence.read(reads++, saved_desc(layer))});
  }
  sequence.append(layer.backward, std::move(arguments));
  return {{.name = layer.backward.impl_info_str(), .sequence = std::move(sequence)}};
}

}  // namespace

LayerRecipe primitive_layer_recipe(const PrimitiveLayer& layer) {
  using enum OperandRole;
  LayerRecipe recipe;
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {{kInput, 0}},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = algorithms_of(forward_implementations(layer)),
                     .cost = layer.cost}};
  if (!layer.backward) {
    return recipe;
  }
  recipe.backward = {{.direction = Direction::kBackwardData,
                      .reads = {{kOutputGradient, 0}},
                      .writes = {{kInputGradient, 0}},
                      .may_overwrite = {},
                      .algorithms = algorithms_of(backward_implementations(layer)),
                      .cost = layer.cost}};
  OpRecipe& forward = recipe.forward[0];
  OpRecipe& backward = recipe.backward[0];
  if (layer.backward_reads_input) {
    backward.reads.push_back({kInput, 0});
    backward.cost.bytes += static_cast<double>(layer.input.get_size());
  }
  if (saves(layer)) {
    const std::size_t bytes = saved_desc(layer).get_size();
    recipe.saved = {{.name = layer.saved,
                     .type = {.data_type = DataType::kU8, .dims = {static_cast<std::int64_t>(bytes)}}}};
    constexpr Operand kSavedByForward{kSaved, 0};
    forward.writes.push_back(kSavedByForward);
    backward.reads.push_back(kSavedByForward);
    forward.cost.bytes += static_cast<double>(bytes);
    backward.cost.bytes += static_cast<double>(bytes);
  }
  return recipe;
}

Mode mode_of(const KernelRequest& request) {
  const bool saves_nothing = request.op.direction == Direction::kForward && request.op.writes.size() == 1;
  return saves_nothing ? Mode::kInference : Mode::kTraining;
}

std::unique_ptr<CpuKernel> primitive_layer_kernel(const Context& context, const PrimitiveLayer& layer,
                                                  const KernelRequest& request) {
  const bool forward = request.op.direction == Direction::kForward;
  return build_requested(context, forward ? forward_implementations(layer) : backward_implementations(layer),
                         request);
}

}  // namespace vdnn::cpu
