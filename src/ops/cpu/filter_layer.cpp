#include "src/ops/cpu/filter_layer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

std::string describe(const FilterShape& shape) {
  return "an input of " + to_string(shape.input.dims) + " and a filter of " + to_string(shape.filter);
}

// For a strided 1x1 convolution oneDNN 2.6 makes a dense copy of the input, in a scratchpad whose size it
// computes from the number of channels. The filter's backward pass writes whole vectors of channels. If there
// are fewer channels than a vector has floats, the pass writes far beyond the scratchpad.
bool overruns_scratchpad(const FilterShape& shape, const std::string& name) {
  constexpr std::int64_t kWidestVector = 16;
  const bool strided = std::ranges::any_of(shape.stride, [](std::int64_t stride) { return stride > 1; });
  return (name.starts_with("jit_1x1") || name.starts_with("jit_bf16_1x1")) && strided &&
         shape.input.dims[1] < kWidestVector;
}

// In the filter's backward pass, oneDNN 2.6's kernel for volumes miscounts the window's slices in the leading
// padding if strides skip some of them. The kernel leaves slices of the gradient unwritten, and reads and
// writes beyond both operands. We have seen this only for paddings larger than the stride.
bool loses_slices(const FilterShape& shape, const std::string& name) {
  return (name.starts_with("jit:") || name.starts_with("jit_bf16:")) && shape.stride.size() == 3 &&
         shape.stride[0] > 1 && shape.padding[0] > shape.stride[0];
}

bool is_wrong(const FilterShape& shape, Direction direction, const std::string& name) {
  return direction == Direction::kBackwardFilter &&
         (overruns_scratchpad(shape, name) || loses_slices(shape, name));
}

bool is_fast(const FilterShape& shape, Direction direction, const dnnl::primitive_desc& primitive) {
  return !is_reference(primitive) && !is_wrong(shape, direction, primitive.impl_info_str());
}

dnnl::memory::desc filter_of(const dnnl::primitive_desc& primitive, Direction direction) {
  return primitive.query_md(
      direction == Direction::kBackwardFilter ? dnnl::query::diff_weights_md : dnnl::query::weights_md, 0);
}

// The following functions build the three passes. Operand numbers are those of the recipe.

// The type in which a pass reads the filter or writes its gradient. The gradient is always fp32.
dnnl::memory::data_type filter_type(const FilterLayer& layer, Direction direction) {
  return to_dnnl(direction == Direction::kBackwardFilter ? DataType::kF32 : layer.shape.input.data_type);
}

// The operand that is the filter or its gradient.
dnnl::memory::desc stored_filter(const FilterLayer& layer, Direction direction) {
  return in_type(layer.storage, filter_type(layer, direction));
}

// A filter that the pass only reads, reordered to the primitive's layout.
PrimitiveSequence::PlaceIndex converted_filter(const Context& context, const dnnl::memory::desc& storage,
                                               const dnnl::memory::desc& wanted,
                                               PrimitiveSequence& sequence) {
  const auto stored = sequence.read(1, storage);
  if (wanted == storage) {
    return stored;
  }
  const auto converted = sequence.scratch(wanted);
  sequence.append_reorder(context.engine, stored, converted);
  return converted;
}

PrimitiveSequence forward_sequence(const Context& context, const FilterLayer& layer,
                                   const dnnl::primitive_desc& primitive) {
  PrimitiveSequence sequence;
  std::vector<PrimitiveSequence::Argument> arguments{
      {DNNL_ARG_SRC, sequence.read(0, dense_desc(layer.shape.input))},
      {DNNL_ARG_WEIGHTS, converted_filter(context, stored_filter(layer, Direction::kForward),
                                          filter_of(primitive, Direction::kForward), sequence)},
      {DNNL_ARG_DST, sequence.write(0, dense_desc(layer.shape.output))}};
  if (layer.shape.bias) {
    arguments.push_back({DNNL_ARG_BIAS, sequence.read(2, bias_desc(layer.shape))});
  }
  sequence.append(primitive, std::move(arguments));
  return sequence;
}

PrimitiveSequence backward_data_sequence(const Context& context, const FilterLayer& layer,
                                         const dnnl::primitive_desc& primitive) {
  PrimitiveSequence sequence;
  std::vector<PrimitiveSequence::Argument> arguments{
      {DNNL_ARG_DIFF_DST, sequence.read(0, dense_desc(layer.shape.output))},
      {DNNL_ARG_WEIGHTS, converted_filter(context, stored_filter(layer, Direction::kBackwardData),
                                          filter_of(primitive, Direction::kBackwardData), sequence)},
      {DNNL_ARG_DIFF_SRC, sequence.write(0, dense_desc(layer.shape.input))}};
  sequence.append(primitive, std::move(arguments));
  return sequence;
}

PrimitiveSequence backward_filter_sequence(const Context& context, const FilterLayer& layer,
                                           const dnnl::primitive_desc& primitive) {
  PrimitiveSequence sequence;
  const auto stored = sequence.write(0, layer.storage);
  const auto made_as = filter_of(primitive, Direction::kBackwardFilter);
  const auto made = made_as == layer.storage ? stored : sequence.scratch(made_as);
  std::vector<PrimitiveSequence::Argument> arguments{
      {DNNL_ARG_SRC, sequence.read(0, dense_desc(layer.shape.input))},
      {DNNL_ARG_DIFF_DST, sequence.read(1, dense_desc(layer.shape.output))},
      {DNNL_ARG_DIFF_WEIGHTS, made}};
  if (layer.shape.bias) {
    arguments.push_back({DNNL_ARG_DIFF_BIAS, sequence.write(1, bias_desc(layer.shape))});
  }
  sequence.append(primitive, std::move(arguments));
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
    ImplementationIdentity candidate = identity_of(primitive, direction_);
    if (std::ranges::find(seen_, candidate) != seen_.end()) {
      return;
    }
    implementations_.push_back({.name = unique_name(candidate.name + suffix),
                                .sequence = make_sequence(context_, layer_, direction_, primitive)});
    seen_.push_back(std::move(candidate));
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
  std::vector<ImplementationIdentity> seen_;
  std::vector<Implementation> implementations_;
};

std::vector<Implementation> implementations_of(const Context& context, const FilterLayer& layer,
                                               Direction direction) {
  ImplementationList list(context, layer, direction);
  const auto add_fast = [&](const char* suffix) {
    return [&, suffix](const dnnl::primitive_desc& primitive) {
      if (is_fast(layer.shape, direction, primitive)) {
        list.add(primitive, suffix);
      }
      return true;
    };
  };
  const dnnl::memory::desc any = any_desc(layer.storage, filter_type(layer, direction));
  layer.passes(direction, any, add_fast(""));
  layer.passes(direction, stored_filter(layer, direction), add_fast("@stored"));
  if (list.empty()) {
    layer.passes(direction, any, [&list](const dnnl::primitive_desc& primitive) {
      if (is_reference(primitive)) {
        list.add(primitive, "");
      }
      return true;
    });
  }
  return std::move(list).take();
}

std::vector<Algorithm> pass_algorithms(const Context& context, const FilterLayer& layer,
                                       Direction direction) {
  std::vector<Algorithm> algorithms = algorithms_of(implementations_of(context, layer, direction));
  if (algorithms.empty()) {
    throw InvalidArgument("oneDNN has no implementation of a pass over " + describe(layer.shape) +
                          ", or only one that is known to be wrong");
  }
  return algorithms;
}

}  // namespace

ImplementationIdentity identity_of(const dnnl::primitive_desc& primitive, Direction direction) {
  return {.name = primitive.impl_info_str(), .filter = filter_of(primitive, direction)};
}

dnnl::memory::desc bias_desc(const FilterShape& shape) {
  return shape.bias ? dense_desc(shape.bias_type()) : dnnl::memory::desc();
}

FilterLayer make_filter_layer(FilterShape shape, ForEachImplementation passes) {
  FilterLayer layer{.shape = std::move(shape), .passes = std::move(passes), .logical = {}, .storage = {}};
  layer.logical = dense_desc(layer.shape.filter_type());
  if (layer.shape.groups > 1) {
    dnnl::memory::dims grouped = to_dnnl(layer.shape.filter);
    grouped[0] /= layer.shape.groups;
    grouped.insert(grouped.begin(), layer.shape.groups);
    layer.logical = layer.logical.reshape(grouped);
  }
  const dnnl::memory::data_type read_as = filter_type(layer, Direction::kForward);
  layer.passes(Direction::kForward, any_desc(layer.logical, read_as),
               [&layer](const dnnl::primitive_desc& first) {
                 layer.storage = in_type(filter_of(first, Direction::kForward), dnnl::memory::data_type::f32);
                 return false;
               });
  if (layer.storage.is_zero()) {
    throw InvalidArgument("oneDNN has no implementation for " + describe(layer.shape));
  }
  return layer;
}

bool has_fast_passes(const FilterLayer& layer) {
  return std::ranges::all_of(
      std::array{Direction::kForward, Direction::kBackwardData, Direction::kBackwardFilter},
      [&](Direction direction) {
        bool found = false;
        layer.passes(direction, any_desc(layer.storage, filter_type(layer, direction)),
                     [&](const dnnl::primitive_desc& primitive) {
                       found = is_fast(layer.shape, direction, primitive);
                       return !found;
                     });
        return found;
      });
}

LayerRecipe filter_layer_recipe(const Context& context, const FilterLayer& layer, Mode mode) {
  return ops::filter_layer_recipe(
      layer.shape,
      {.filter_bytes = layer.storage.get_size(),
       .filter_layout = layout_name(layer.storage),
       .bias_layout = layout_name(dense_desc(layer.shape.bias_type()))},
      [&](Direction direction) { return pass_algorithms(context, layer, direction); }, mode);
}

std::unique_ptr<CpuKernel> filter_layer_kernel(const Context& context, const FilterLayer& layer,
                                               const KernelRequest& request) {
  return build_requested(context, implementations_of(context, layer, request.op.direction), request);
}

}  // namespace vdnn::cpu
