#include "src/ops/cpu/filter_layer.h"

#include <algorithm>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

bool is_reference(const std::string& name) {
  return name.starts_with("ref");
}

dnnl::memory::desc filter_of(const dnnl::primitive_desc& primitive, Direction direction) {
  return primitive.query_md(
      direction == Direction::kBackwardFilter ? dnnl::query::diff_weights_md : dnnl::query::weights_md, 0);
}

// The three passes; operand numbers are those of the recipe.

PrimitiveSequence forward_sequence(const Context& context, const FilterLayer& layer,
                                   const dnnl::primitive_desc& primitive) {
  PrimitiveSequence sequence;
  const auto input = sequence.read(0, dense_desc(layer.input.dims));
  auto filter = sequence.read(1, layer.storage);
  const auto bias = sequence.read(2, dense_desc(layer.bias.dims));
  const auto output = sequence.write(0, dense_desc(layer.output.dims));
  if (const auto wanted = filter_of(primitive, Direction::kForward); wanted != layer.storage) {
    const auto converted = sequence.scratch(wanted);
    sequence.append_reorder(context.engine, std::exchange(filter, converted), converted);
  }
  sequence.append(
      primitive,
      {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, filter}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, output}});
  return sequence;
}

PrimitiveSequence backward_data_sequence(const Context& context, const FilterLayer& layer,
                                         const dnnl::primitive_desc& primitive) {
  PrimitiveSequence sequence;
  const auto output_gradient = sequence.read(0, dense_desc(layer.output.dims));
  auto filter = sequence.read(1, layer.storage);
  const auto input_gradient = sequence.write(0, dense_desc(layer.input.dims));
  if (const auto wanted = filter_of(primitive, Direction::kBackwardData); wanted != layer.storage) {
    const auto converted = sequence.scratch(wanted);
    sequence.append_reorder(context.engine, std::exchange(filter, converted), converted);
  }
  sequence.append(primitive, {{DNNL_ARG_DIFF_DST, output_gradient},
                              {DNNL_ARG_WEIGHTS, filter},
                              {DNNL_ARG_DIFF_SRC, input_gradient}});
  return sequence;
}

PrimitiveSequence backward_filter_sequence(const Context& context, const FilterLayer& layer,
                                           const dnnl::primitive_desc& primitive) {
  PrimitiveSequence sequence;
  const auto input = sequence.read(0, dense_desc(layer.input.dims));
  const auto output_gradient = sequence.read(1, dense_desc(layer.output.dims));
  const auto stored = sequence.write(0, layer.storage);
  const auto bias = sequence.write(1, dense_desc(layer.bias.dims));
  const auto made_as = filter_of(primitive, Direction::kBackwardFilter);
  const auto made = made_as == layer.storage ? stored : sequence.scratch(made_as);
  sequence.append(primitive, {{DNNL_ARG_SRC, input},
                              {DNNL_ARG_DIFF_DST, output_gradient},
                              {DNNL_ARG_DIFF_WEIGHTS, made},
                              {DNNL_ARG_DIFF_BIAS, bias}});
  if (made != stored) {
    sequence.append_reorder(context.engine, made, stored);
  }
  return sequence;
}

PrimitiveSequence make_sequence(const Context& context, const FilterLayer& layer, Direction direction,
                                const dnnl::primitive_desc& primitive) {
  switch (direction) {
    case Direction::kForward:
      return forward_sequence(context, layer, primitive);
    case Direction::kBackwardData:
      return backward_data_sequence(context, layer, primitive);
    case Direction::kBackwardFilter:
      return backward_filter_sequence(context, layer, primitive);
    case Direction::kUpdate:
      break;
  }
  throw InvalidArgument("a layer has no update pass");
}

class ImplementationList {
 public:
  ImplementationList(const Context& context, const FilterLayer& layer, Direction direction)
      : context_(context), layer_(layer), direction_(direction) {}

  void add(const dnnl::primitive_desc& primitive, const std::string& suffix) {
    const std::pair candidate{std::string(primitive.impl_info_str()), filter_of(primitive, direction_)};
    if (std::ranges::find(seen_, candidate) != seen_.end()) {
      return;
    }
    seen_.push_back(candidate);
    implementations_.push_back({.name = unique_name(candidate.first + suffix),
                                .sequence = make_sequence(context_, layer_, direction_, primitive)});
  }

  bool empty() const { return implementations_.empty(); }
  std::vector<Implementation> take() && { return std::move(implementations_); }

 private:
  std::string unique_name(const std::string& name) const {
    std::string unique = name;
    for (int n = 2;
         std::ranges::find(implementations_, unique, &Implementation::name) != implementations_.end(); ++n) {
      unique = name + "#" + std::to_string(n);
    }
    return unique;
  }

  const Context& context_;
  const FilterLayer& layer_;
  Direction direction_;
  std::vector<std::pair<std::string, dnnl::memory::desc>> seen_;
  std::vector<Implementation> implementations_;
};

const ForEachImplementation& pass_of(const FilterLayer& layer, Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return layer.passes.forward;
    case Direction::kBackwardData:
      return layer.passes.backward_data;
    case Direction::kBackwardFilter:
      return layer.passes.backward_filter;
    case Direction::kUpdate:
      break;
  }
  throw InvalidArgument("a layer has no update pass");
}

std::vector<Implementation> implementations_of(const Context& context, const FilterLayer& layer,
                                               Direction direction) {
  ImplementationList list(context, layer, direction);
  const auto add_fast = [&](const char* suffix) {
    return [&list, suffix](const dnnl::primitive_desc& primitive) {
      if (!is_reference(primitive.impl_info_str())) {
        list.add(primitive, suffix);
      }
      return true;
    };
  };
  const ForEachImplementation& for_each_implementation = pass_of(layer, direction);
  const dnnl::memory::desc any = any_desc(layer.filter.dims);
  for_each_implementation(any, add_fast(""));
  for_each_implementation(layer.storage, add_fast("@stored"));
  if (list.empty()) {
    for_each_implementation(any, [&list](const dnnl::primitive_desc& primitive) {
      list.add(primitive, "");
      return true;
    });
  }
  return std::move(list).take();
}

// Products that one output sums.
std::int64_t fan_in(const FilterLayer& layer) {
  return static_cast<std::int64_t>(layer.filter.elements() / layer.bias.elements());
}

OpRecipe pass_recipe(const Context& context, const FilterLayer& layer, Direction direction) {
  OpRecipe recipe{.direction = direction};
  recipe.algorithms = algorithms_of(implementations_of(context, layer, direction));
  if (recipe.algorithms.empty()) {
    throw InvalidArgument("oneDNN has no implementation of a pass over " + to_string(layer.input.dims) +
                          " with filter " + to_string(layer.filter.dims));
  }
  const double multiply_adds =
      static_cast<double>(layer.output.elements()) * static_cast<double>(fan_in(layer));
  recipe.cost.flops = 2 * multiply_adds;
  recipe.cost.bytes = static_cast<double>(layer.input.bytes()) + static_cast<double>(layer.output.bytes()) +
                      static_cast<double>(layer.storage.get_size());
  if (direction != Direction::kBackwardData) {
    recipe.cost.bytes += static_cast<double>(layer.bias.bytes());
  }
  return recipe;
}

}  // namespace

FilterLayer make_filter_layer(const TensorType& input, const TensorType& output, Dims filter, Passes passes) {
  FilterLayer layer{.input = input,
                    .output = output,
                    .filter = {.dims = std::move(filter)},
                    .bias = {},
                    .passes = std::move(passes),
                    .storage = {}};
  layer.bias.dims = {layer.filter.dims[0]};
  layer.passes.forward(any_desc(layer.filter.dims), [&layer](const dnnl::primitive_desc& first) {
    layer.storage = filter_of(first, Direction::kForward);
    return false;
  });
  if (layer.storage.is_zero()) {
    throw InvalidArgument("oneDNN has no implementation for an input of " + to_string(input.dims) +
                          " and a filter of " + to_string(layer.filter.dims));
  }
  return layer;
}

LayerRecipe filter_layer_recipe(const Context& context, const FilterLayer& layer, Mode mode) {
  using enum OperandRole;
  LayerRecipe recipe;
  recipe.parameters = {{.name = "filter",
                        .type = layer.filter,
                        .storage_bytes = layer.storage.get_size(),
                        .initializer = Initializer::kHeNormal,
                        .fan_in = fan_in(layer),
                        .storage_layout = layout_name(layer.storage)},
                       {.name = "bias",
                        .type = layer.bias,
                        .storage_bytes = layer.bias.bytes(),
                        .storage_layout = layout_name(dense_desc(layer.bias.dims))}};

  OpRecipe forward = pass_recipe(context, layer, Direction::kForward);
  forward.reads = {{kInput, 0}, {kParameter, 0}, {kParameter, 1}};
  forward.writes = {{kOutput, 0}};
  recipe.forward = {std::move(forward)};
  if (mode == Mode::kInference) {
    return recipe;
  }
  OpRecipe filter = pass_recipe(context, layer, Direction::kBackwardFilter);
  filter.reads = {{kInput, 0}, {kOutputGradient, 0}};
  filter.writes = {{kParameterGradient, 0}, {kParameterGradient, 1}};
  OpRecipe data = pass_recipe(context, layer, Direction::kBackwardData);
  data.reads = {{kOutputGradient, 0}, {kParameter, 0}};
  data.writes = {{kInputGradient, 0}};
  recipe.backward = {std::move(filter), std::move(data)};
  return recipe;
}

std::unique_ptr<CpuKernel> filter_layer_kernel(const Context& context, const FilterLayer& layer,
                                               const KernelRequest& request) {
  return build_requested(context, implementations_of(context, layer, request.op.direction), request);
}

}  // namespace vdnn::cpu
