// Lowering: recipes of a catalog become ops over values. Three things are decided here and nowhere else.
// Which gradients are wanted: those of feature maps that some parameter has a part in; the others (data
// inputs, and what is computed from them without parameters) are never computed. Where a feature map forks,
// the contributions to its gradient are added in the order in which the backward pass makes them, each as
// soon as it is made, so that no more than two of them are alive. And a parameter is updated right after the
// last backward op of its layer that reads it or makes its gradient, so that gradients do not pile up; but
// where they are clipped by their common norm, or summed over ranks, all updates follow the backward pass:
// one that stood in it would make the rest of it wait for the ranks.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "src/tape/order_costs.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn {

namespace {

// What is known of one layer while the network is lowered.
struct LayerState {
  LayerRecipe recipe;
  std::vector<std::size_t> kept;      // positions in recipe.backward of the ops that make a wanted gradient
  std::vector<UpdateRecipe> updates;  // a parameter; empty for one that is not trained
  std::vector<ValueId> parameters;
  std::vector<ValueId> parameter_gradients;
  std::vector<ValueId> saved;
  std::size_t first_parameter = 0;  // in Tape::Parts::parameters
};

// The gradient of one feature map while its contributions come in.
struct GradientSum {
  bool wanted = false;
  std::uint32_t expected = 0;  // contributions in all
  std::uint32_t arrived = 0;
  ValueId value = kNone;  // their sum so far
};

[[noreturn]] void reject_recipe(const std::string& layer, const std::string& why) {
  throw InvalidArgument("layer " + layer + ": the catalog's recipe " + why);
}

// What an op is called behind its layer's name: "backward_data", numbered where the recipe has several ops of
// that direction.
std::string op_suffix(const std::vector<OpRecipe>& recipes, std::size_t position) {
  static constexpr std::array<const char*, 4> kNames{"forward", "backward_data", "backward_filter", "update"};
  const Direction direction = recipes[position].direction;
  const auto same = [direction](const OpRecipe& recipe) { return recipe.direction == direction; };
  std::string name = kNames.at(static_cast<std::size_t>(direction));
  if (std::ranges::count_if(recipes, same) == 1) {
    return name;
  }
  const auto begin = recipes.begin();
  return name + std::to_string(std::count_if(begin, begin + static_cast<std::ptrdiff_t>(position), same));
}

// Throws where a recipe names an operand that its layer does not have, or makes a gradient that cannot be.
void check_operands(const std::string& layer, const LayerRecipe& recipe, std::size_t inputs) {
  const auto count_of = [&](OperandRole role) -> std::size_t {
    switch (role) {
      case OperandRole::kInput:
      case OperandRole::kInputGradient:
        return inputs;
      case OperandRole::kOutput:
      case OperandRole::kOutputGradient:
        return 1;
      case OperandRole::kParameter:
      case OperandRole::kParameterGradient:
        return recipe.parameters.size();
      case OperandRole::kSaved:
        return recipe.saved.size();
      case OperandRole::kParameterCopy:
      case OperandRole::kState:
      case OperandRole::kGradientNorm:
      case OperandRole::kGradientSum:
      case OperandRole::kLossScale:
        break;
    }
    return 0;
  };
  for (const std::vector<OpRecipe>* ops : {&recipe.forward, &recipe.backward}) {
    for (std::size_t position = 0; position < ops->size(); ++position) {
      for (const std::vector<Operand>* operands : {&(*ops)[position].reads, &(*ops)[position].writes}) {
        for (const Operand& operand : *operands) {
          if (operand.index >= count_of(operand.role)) {
            reject_recipe(layer, "names an operand that does not exist in op " + op_suffix(*ops, position));
          }
        }
      }
      // Nobody would read it.
      for (const Operand& write : (*ops)[position].writes) {
        if (write.role == OperandRole::kParameterGradient && !recipe.parameters[write.index].trainable) {
          reject_recipe(layer, "makes the gradient of parameter '" + recipe.parameters[write.index].name +
                                   "', which is not trainable, in op " + op_suffix(*ops, position));
        }
      }
    }
  }
}

// Those whose cost the recipe leaves open follow the one before them in the library's order.
std::vector<Algorithm> with_costs(std::vector<Algorithm> algorithms, const Cost& cost) {
  Cost previous = cost;
  for (std::size_t rank = 0; rank < algorithms.size(); ++rank) {
    if (rank > 0 && !algorithms[rank].cost) {
      algorithms[rank].cost = cost_of_next(previous);
    }
    previous = algorithms[rank].cost.value_or(cost);
  }
  return algorithms;
}

float loss_weight(const OpSpec& spec) {
  return std::visit(
      [](const auto& loss) -> float {
        if constexpr (requires { loss.weight; }) {
          return loss.weight;
        } else {
          return 0;
        }
      },
      spec);
}

// The same loss, its gradients so many times as large.
OpSpec scaled(OpSpec spec, float factor) {
  std::visit(
      [factor](auto& loss) {
        if constexpr (requires { loss.weight; }) {
          loss.weight *= factor;
        }
      },
      spec);
  return spec;
}

TensorType floats(std::size_t bytes) {
  return {.dims = {static_cast<std::int64_t>(bytes / sizeof(float))}};
}

bool mentions(const std::vector<Operand>& operands, OperandRole role, std::size_t index) {
  return std::ranges::any_of(operands, [role, index](const Operand& operand) {
    return operand.role == role && operand.index == index;
  });
}

class Lowering {
 public:
  // No training: evaluation.
  Lowering(Network network, const OpCatalog& catalog, const TrainingOptions* training)
      : network_(std::move(network)),
        catalog_(catalog),
        training_(training),
        layers_(network_.layers().size()),
        feature_maps_(network_.feature_maps(), kNone),
        gradients_(network_.feature_maps()) {}

  std::shared_ptr<const Tape> run();

 private:
  const Layer& layer(std::uint32_t id) const { return network_.layers()[id]; }
  OpSpec spec_of(std::uint32_t id) const;
  std::vector<TensorType> input_types(std::uint32_t id) const;

  void declare_inputs();
  void describe(std::uint32_t id);
  void fetch_recipe(std::uint32_t id);
  void declare_parameters(std::uint32_t id);
  bool makes_logits(std::uint32_t id) const;
  bool wanted(std::uint32_t id, const Operand& write) const;
  void find_ways_to_losses();
  void choose_backward_ops(std::uint32_t id);
  void expect_contributions(std::uint32_t id);

  void lower_forward(std::uint32_t id);
  void lower_backward(std::uint32_t id);
  void take_contribution(std::uint32_t id, std::uint32_t feature_map, ValueId value);
  bool looks_at_all_gradients() const { return training_->clip_norm || training_->scales_losses(); }
  bool updates_follow_backward() const { return looks_at_all_gradients() || training_->ranks > 1; }
  void declare_loss_scale();
  ValueId scale_gradient(std::uint32_t id, ValueId gradient);
  void lower_loss_scale_update();
  void add_catalog_op(Op op);
  void lower_updates(std::uint32_t id, std::size_t position);
  void take_gradient(std::uint32_t id, std::uint32_t parameter);
  void accumulate(std::uint32_t id, std::uint32_t parameter);
  ValueId convert_gradient(std::uint32_t id, ValueId gradient, DataType type, const std::string& name);
  void narrow_gradient(std::uint32_t id, std::uint32_t parameter);
  ValueId wide_gradient(std::uint32_t id, std::size_t parameter);
  std::string gradient_name(std::uint32_t id, std::size_t parameter) const;
  template <class Resolve>
  void add_parameter_op(Op op, const TensorType& parameter, const OpRecipe& recipe, const Resolve& resolve);
  void reduce_saved(std::uint32_t id, const OpRecipe& recipe);
  void reduce_bucket();
  void reduce_metrics();
  Op all_reduce(std::string name, Phase phase, std::vector<ValueId> values);
  void lower_update(std::uint32_t id, std::size_t parameter);
  void lower_gradient_norm();
  void lower_all_updates();
  void list_results();
  bool last_use_of_parameter(std::uint32_t id, std::size_t position, std::size_t parameter) const;

  ValueId declare(std::string name, ValueKind kind, const TensorType& type, std::uint64_t bytes);
  ValueId read(std::uint32_t id, const Operand& operand) const;
  ValueId make(std::uint32_t id, Phase phase, const Operand& operand);
  ValueId make_output(std::uint32_t id);
  ValueId make_saved(std::uint32_t id, Phase phase, std::uint32_t index);
  ValueId make_input_gradient(std::uint32_t id, std::uint32_t index);
  ValueId make_parameter_gradient(std::uint32_t id, std::uint32_t index);
  Op layer_op(std::uint32_t id, Phase phase, const std::vector<OpRecipe>& recipes, std::size_t position);

  Network network_;
  const OpCatalog& catalog_;
  const TrainingOptions* training_;
  std::vector<LayerState> layers_;
  std::vector<ValueId> feature_maps_;
  std::vector<GradientSum> gradients_;  // a feature map
  std::vector<bool> reaches_loss_;      // a layer: what only the host looks at has no gradient
  ValueId gradient_norm_ = kNone;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> bucket_;  // layer, parameter: not reduced yet
  std::uint64_t bucket_bytes_ = 0;
  std::uint32_t buckets_ = 0;     // that were reduced
  std::vector<ValueId> metrics_;  // a loss: what the host is given
  Tape::Parts parts_;
};

// As the catalog and its ops are given it.
OpSpec Lowering::spec_of(std::uint32_t id) const {
  OpSpec spec = layer(id).spec;
  if (auto* const normalization = std::get_if<BatchNormalizationSpec>(&spec)) {
    normalization->ranks = training_ != nullptr && training_->sync_batch_normalization ? training_->ranks : 1;
  } else if (training_ != nullptr && is_loss(spec)) {
    const auto batches = static_cast<float>(training_->ranks) * static_cast<float>(training_->micro_steps);
    return scaled(std::move(spec), 1 / batches);
  }
  return spec;
}

std::vector<TensorType> Lowering::input_types(std::uint32_t id) const {
  std::vector<TensorType> types;
  for (const std::uint32_t input : layer(id).inputs) {
    types.push_back(network_.type(input));
  }
  return types;
}

ValueId Lowering::declare(std::string name, ValueKind kind, const TensorType& type, std::uint64_t bytes) {
  parts_.values.push_back({std::move(name), kind, type, bytes});
  return static_cast<ValueId>(parts_.values.size() - 1);
}

void Lowering::declare_inputs() {
  const auto declare_input = [this](std::uint32_t id, ValueKind kind) {
    const TensorType& type = network_.type(id);
    feature_maps_[id] = declare(network_.feature_map_name(id), kind, type, type.bytes());
    parts_.inputs.push_back(feature_maps_[id]);
  };
  declare_input(network_.input(), ValueKind::kInput);
  for (const std::uint32_t target : network_.targets()) {
    declare_input(target, ValueKind::kTarget);
  }
}

void Lowering::find_ways_to_losses() {
  std::vector<bool> read(network_.feature_maps());  // by a layer that reaches a loss
  reaches_loss_.assign(layers_.size(), false);
  for (auto id = static_cast<std::uint32_t>(layers_.size()); id-- > 0;) {
    reaches_loss_[id] = is_loss(layer(id).spec) || read[layer(id).output];
    for (const std::uint32_t input : layer(id).inputs) {
      read[input] = read[input] || reaches_loss_[id];
    }
  }
}

void Lowering::describe(std::uint32_t id) {
  const bool after_classifier = std::ranges::any_of(layer(id).inputs, [&](std::uint32_t input) {
    for (std::uint32_t earlier = 0; earlier < id; ++earlier) {
      if (layer(earlier).output == input) {
        return parts_.layers[earlier].classifier;
      }
    }
    return false;
  });
  const OpSpec& spec = layer(id).spec;
  parts_.layers.push_back(
      {.name = layer(id).name,
       .convolution = std::holds_alternative<ConvolutionSpec>(spec) ||
                      std::holds_alternative<TransposedConvolutionSpec>(spec),
       .classifier = after_classifier || std::holds_alternative<FullyConnectedSpec>(spec)});
}

void Lowering::fetch_recipe(std::uint32_t id) {
  const std::array<TensorType, 1> outputs{network_.type(layer(id).output)};
  LayerState& state = layers_[id];
  try {
    state.recipe = catalog_.recipe(spec_of(id), input_types(id), outputs,
                                   training_ == nullptr ? Mode::kInference : Mode::kTraining);
  } catch (const InvalidArgument& error) {  // catalogs know kinds of layers, not their names
    throw InvalidArgument("layer " + layer(id).name + ": " + error.what());
  }
  check_operands(layer(id).name, state.recipe, layer(id).inputs.size());
  state.saved.assign(state.recipe.saved.size(), kNone);
  state.parameter_gradients.assign(state.recipe.parameters.size(), kNone);
}

void Lowering::declare_parameters(std::uint32_t id) {
  LayerState& state = layers_[id];
  state.first_parameter = parts_.parameters.size();
  for (ParameterRecipe& recipe : state.recipe.parameters) {
    if (recipe.initializer == Initializer::kHeNormal && makes_logits(id)) {
      recipe.initializer = Initializer::kLogitsNormal;
    }
    const std::string name = layer(id).name + "." + recipe.name;
    TapeParameter parameter{.value = declare(name, ValueKind::kParameter, recipe.type, recipe.storage_bytes),
                            .state = {},
                            .recipe = recipe};
    if (recipe.copy && !(is_narrow(*recipe.copy) && recipe.trainable)) {
      reject_recipe(layer(id).name, "has a copy of parameter '" + recipe.name +
                                        "' that is neither fp16 nor bf16, or that no update writes");
    }
    if (recipe.copy) {
      TensorType type = recipe.type;
      type.data_type = *recipe.copy;
      parameter.copy =
          declare(name + "." + to_string(*recipe.copy), ValueKind::kParameterCopy, type, recipe.copy_bytes());
    }
    state.parameters.push_back(parameter.value);
    state.updates.emplace_back();
    if (training_ != nullptr && recipe.trainable && reaches_loss_[id]) {
      state.updates.back() = catalog_.update_recipe(training_->optimizer, recipe, looks_at_all_gradients());
      for (const SavedRecipe& kept : state.updates.back().state) {
        parameter.state.push_back(
            declare(name + "." + kept.name, ValueKind::kOptimizerState, kept.type, kept.type.bytes()));
      }
    }
    parts_.parameters.push_back(std::move(parameter));
  }
}

// Itself, or by way of a conversion.
bool Lowering::makes_logits(std::uint32_t id) const {
  for (std::uint32_t reader = id + 1; reader < layers_.size(); ++reader) {
    const OpSpec& spec = layer(reader).spec;
    if (layer(reader).inputs.front() != layer(id).output) {
      continue;
    }
    if ((is_loss(spec) && !std::holds_alternative<MeanSquaredErrorSpec>(spec)) ||
        (std::holds_alternative<ConversionSpec>(spec) && makes_logits(reader))) {
      return true;
    }
  }
  return false;
}

bool Lowering::wanted(std::uint32_t id, const Operand& write) const {
  return (write.role == OperandRole::kParameterGradient &&
          layers_[id].recipe.parameters[write.index].trainable) ||
         (write.role == OperandRole::kInputGradient && gradients_[layer(id).inputs[write.index]].wanted);
}

void Lowering::choose_backward_ops(std::uint32_t id) {
  LayerState& state = layers_[id];
  for (std::size_t position = 0; position < state.recipe.backward.size(); ++position) {
    const std::vector<Operand>& writes = state.recipe.backward[position].writes;
    if (std::ranges::any_of(writes, [&](const Operand& write) { return wanted(id, write); })) {
      state.kept.push_back(position);
    }
  }
}

void Lowering::expect_contributions(std::uint32_t id) {
  const LayerState& state = layers_[id];
  // Anything else would be a gradient that is too small, or a parameter that never learns.
  const auto require_one_maker = [&](OperandRole role, std::uint32_t index, const std::string& what) {
    const auto makers = std::ranges::count_if(state.kept, [&](std::size_t position) {
      return mentions(state.recipe.backward[position].writes, role, index);
    });
    if (makers != 1) {
      reject_recipe(layer(id).name,
                    "makes the gradient of " + what + " " + std::to_string(makers) + " times");
    }
  };
  for (std::uint32_t input = 0; input < layer(id).inputs.size(); ++input) {
    GradientSum& gradient = gradients_[layer(id).inputs[input]];
    if (gradient.wanted) {
      require_one_maker(OperandRole::kInputGradient, input, "input " + std::to_string(input));
      ++gradient.expected;
    }
  }
  for (std::uint32_t index = 0; index < state.parameters.size(); ++index) {
    if (!state.recipe.parameters[index].trainable) {
      continue;
    }
    require_one_maker(OperandRole::kParameterGradient, index, state.recipe.parameters[index].name);
  }
}

// The value that an op of layer `id` reads there; kNone where there is none (yet).
ValueId Lowering::read(std::uint32_t id, const Operand& operand) const {
  const LayerState& state = layers_[id];
  switch (operand.role) {
    case OperandRole::kInput:
      return feature_maps_[layer(id).inputs[operand.index]];
    case OperandRole::kOutput:
      return feature_maps_[layer(id).output];
    case OperandRole::kParameter: {
      const ValueId copy = parts_.parameters[state.first_parameter + operand.index].copy;
      return copy != kNone ? copy : state.parameters[operand.index];
    }
    case OperandRole::kSaved:
      return state.saved[operand.index];
    case OperandRole::kOutputGradient:
      return gradients_[layer(id).output].value;
    case OperandRole::kParameterGradient:
      return state.parameter_gradients[operand.index];
    case OperandRole::kInputGradient:
    case OperandRole::kParameterCopy:
    case OperandRole::kState:
    case OperandRole::kGradientNorm:
    case OperandRole::kGradientSum:
    case OperandRole::kLossScale:
      break;
  }
  return kNone;
}

ValueId Lowering::make_output(std::uint32_t id) {
  const std::uint32_t output = layer(id).output;
  const bool metrics = is_loss(layer(id).spec);
  const TensorType& type = network_.type(output);
  feature_maps_[output] = declare(network_.feature_map_name(output),
                                  metrics ? ValueKind::kMetrics : ValueKind::kFeatureMap, type, type.bytes());
  return feature_maps_[output];
}

ValueId Lowering::make_saved(std::uint32_t id, Phase phase, std::uint32_t index) {
  LayerState& state = layers_[id];
  const SavedRecipe& recipe = state.recipe.saved[index];
  std::string name = layer(id).name + "." + recipe.name;
  if (recipe.summed_over_ranks) {
    name += ".local";
  }
  state.saved[index] =
      declare(std::move(name), phase == Phase::kForward ? ValueKind::kSaved : ValueKind::kGradientNorm,
              recipe.type, recipe.type.bytes());
  return state.saved[index];
}

// A contribution; the only one to a feature map is its gradient. What comes with others and nobody wants is
// one of any number, too.
ValueId Lowering::make_input_gradient(std::uint32_t id, std::uint32_t index) {
  const std::uint32_t feature_map = layer(id).inputs[index];
  std::string name = network_.feature_map_name(feature_map) + ".gradient";
  if (gradients_[feature_map].expected != 1) {
    name += "." + layer(id).name;
    if (std::ranges::count(layer(id).inputs, feature_map) > 1) {
      name += "." + std::to_string(index);
    }
  }
  const TensorType& type = network_.type(feature_map);
  return declare(std::move(name), ValueKind::kGradientMap, type, type.bytes());
}

ValueId Lowering::make_parameter_gradient(std::uint32_t id, std::uint32_t index) {
  LayerState& state = layers_[id];
  const Value parameter = parts_.values[state.parameters[index]];
  const bool local = training_->ranks > 1 && training_->micro_steps == 1;  // the sum has the name
  state.parameter_gradients[index] = declare(parameter.name + (local ? ".gradient.local" : ".gradient"),
                                             ValueKind::kParameterGradient, parameter.type, parameter.bytes);
  return state.parameter_gradients[index];
}

ValueId Lowering::make(std::uint32_t id, Phase phase, const Operand& operand) {
  switch (operand.role) {
    case OperandRole::kParameter:  // running statistics follow the forward pass
      return layers_[id].recipe.parameters[operand.index].trainable ? kNone
                                                                    : layers_[id].parameters[operand.index];
    case OperandRole::kOutput:
      return make_output(id);
    case OperandRole::kSaved:
      return make_saved(id, phase, operand.index);
    case OperandRole::kInputGradient:
      return make_input_gradient(id, operand.index);
    case OperandRole::kParameterGradient:
      return make_parameter_gradient(id, operand.index);
    default:
      return kNone;
  }
}

// An op of the layer with all but its operands.
Op Lowering::layer_op(std::uint32_t id, Phase phase, const std::vector<OpRecipe>& recipes,
                      std::size_t position) {
  const OpRecipe& recipe = recipes[position];
  Op op{.name = layer(id).name + "." + op_suffix(recipes, position),
        .layer = id,
        .phase = phase,
        .direction = recipe.direction,
        .position = static_cast<std::uint32_t>(position),
        .spec = spec_of(id),
        .layer_inputs = input_types(id),
        .layer_outputs = {network_.type(layer(id).output)},
        .reads = {},
        .writes = {},
        .may_overwrite = recipe.may_overwrite,
        .algorithms = with_costs(recipe.algorithms, recipe.cost),
        .cost = recipe.cost};
  for (const Operand& operand : recipe.reads) {
    op.reads.push_back(read(id, operand));
    if (op.reads.back() == kNone) {
      reject_recipe(layer(id).name, "reads an operand that no op makes, in op " + op.name);
    }
  }
  for (const Operand& operand : recipe.writes) {
    op.writes.push_back(make(id, phase, operand));
    if (op.writes.back() == kNone) {
      reject_recipe(layer(id).name, "writes an operand that is not its own, in op " + op.name);
    }
  }
  return op;
}

void Lowering::lower_forward(std::uint32_t id) {
  const std::vector<OpRecipe>& recipes = layers_[id].recipe.forward;
  for (std::size_t position = 0; position < recipes.size(); ++position) {
    parts_.ops.push_back(layer_op(id, Phase::kForward, recipes, position));
    reduce_saved(id, recipes[position]);
  }
}

void Lowering::lower_backward(std::uint32_t id) {
  const LayerState& state = layers_[id];
  for (const std::size_t position : state.kept) {
    const OpRecipe& recipe = state.recipe.backward[position];
    Op op = layer_op(id, Phase::kBackward, state.recipe.backward, position);
    const std::vector<ValueId> writes = op.writes;
    parts_.ops.push_back(std::move(op));
    reduce_saved(id, recipe);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (recipe.writes[i].role == OperandRole::kInputGradient && wanted(id, recipe.writes[i])) {
        const ValueId contribution = is_loss(layer(id).spec) ? scale_gradient(id, writes[i]) : writes[i];
        take_contribution(id, layer(id).inputs[recipe.writes[i].index], contribution);
      }
    }
    for (const Operand& write : recipe.writes) {
      if (write.role == OperandRole::kParameterGradient && wanted(id, write)) {
        take_gradient(id, write.index);
      }
    }
    if (!updates_follow_backward()) {
      lower_updates(id, position);
    }
  }
}

// What becomes of the gradient before its parameter is updated.
void Lowering::take_gradient(std::uint32_t id, std::uint32_t parameter) {
  if (training_->micro_steps > 1) {
    accumulate(id, parameter);
  }
  if (is_narrow(training_->reduces_in())) {
    narrow_gradient(id, parameter);
  }
  if (training_->ranks > 1) {
    bucket_.emplace_back(id, parameter);
    bucket_bytes_ += parts_.values[layers_[id].parameter_gradients[parameter]].bytes;
    if (bucket_bytes_ >= training_->bucket_bytes) {
      reduce_bucket();
    }
  }
}

// Adds an op that works on one parameter, as its recipe has it, with the operands that `resolve` names.
template <class Resolve>
void Lowering::add_parameter_op(Op op, const TensorType& parameter, const OpRecipe& recipe,
                                const Resolve& resolve) {
  op.direction = Direction::kUpdate;
  op.layer_inputs = {parameter};
  op.layer_outputs = {parameter};
  op.may_overwrite = recipe.may_overwrite;
  op.algorithms = recipe.algorithms;
  op.cost = recipe.cost;
  std::ranges::transform(recipe.reads, std::back_inserter(op.reads), resolve);
  std::ranges::transform(recipe.writes, std::back_inserter(op.writes), resolve);
  parts_.ops.push_back(std::move(op));
}

void Lowering::accumulate(std::uint32_t id, std::uint32_t index) {
  ValueId& gradient = layers_[id].parameter_gradients[index];
  TapeParameter& parameter = parts_.parameters[layers_[id].first_parameter + index];
  const Value of_batch = parts_.values[gradient];
  parameter.gradient_sum =
      declare(of_batch.name + "_sum", ValueKind::kGradientSum, of_batch.type, of_batch.bytes);
  const OpRecipe recipe = catalog_.gradient_sum_recipe(parameter.recipe);
  const auto resolve = [&](const Operand& operand) {
    return operand.role == OperandRole::kGradientSum ? parameter.gradient_sum : gradient;
  };
  add_parameter_op({.name = of_batch.name + ".accumulate",
                    .layer = id,
                    .phase = Phase::kBackward,
                    .spec = GradientSumSpec{}},
                   parameter.recipe.type, recipe, resolve);
  gradient = parameter.gradient_sum;
}

// Of what ranks reduce.
std::string Lowering::gradient_name(std::uint32_t id, std::size_t parameter) const {
  return parts_.values[layers_[id].parameters[parameter]].name +
         (training_->micro_steps > 1 ? ".gradient_sum" : ".gradient");
}

// As it lies in memory, whatever the parameter's shape. Part of the update: once for all micro-steps.
ValueId Lowering::convert_gradient(std::uint32_t id, ValueId gradient, DataType type,
                                   const std::string& name) {
  const Value from = parts_.values[gradient];
  const std::uint64_t elements = from.bytes / size_of(from.type.data_type);
  TensorType logical = from.type;
  logical.data_type = type;
  const ValueId converted = declare(name, ValueKind::kParameterGradient, logical, elements * size_of(type));
  const Dims flat{static_cast<std::int64_t>(elements)};
  add_catalog_op({.name = from.name + ".to_" + to_string(type),
                  .layer = id,
                  .phase = Phase::kUpdate,
                  .direction = Direction::kForward,
                  .spec = ConversionSpec{.to = type},
                  .layer_inputs = {{.data_type = from.type.data_type, .dims = flat}},
                  .layer_outputs = {{.data_type = type, .dims = flat}},
                  .reads = {gradient},
                  .writes = {converted}});
  return converted;
}

// To the type that ranks send. Where gradients are accumulated they stay in fp32 beside it.
void Lowering::narrow_gradient(std::uint32_t id, std::uint32_t parameter) {
  const DataType type = training_->reduce_precision;
  ValueId& gradient = layers_[id].parameter_gradients[parameter];
  gradient = convert_gradient(id, gradient, type, gradient_name(id, parameter) + ".local." + to_string(type));
}

// The gradient for the update, in fp32. A sum that ranks made in a narrow type is converted here.
ValueId Lowering::wide_gradient(std::uint32_t id, std::size_t parameter) {
  ValueId& gradient = layers_[id].parameter_gradients[parameter];
  if (gradient != kNone && is_narrow(parts_.values[gradient].type.data_type)) {
    // The rank's own sum over its micro-steps has the shorter name.
    const char* const suffix = training_->micro_steps > 1 ? ".reduced" : "";
    gradient = convert_gradient(id, gradient, DataType::kF32, gradient_name(id, parameter) + suffix);
  }
  return gradient;
}

// The op without its writes, each of which lies where the read lies.
Op Lowering::all_reduce(std::string name, Phase phase, std::vector<ValueId> values) {
  Op op{.name = std::move(name),
        .phase = phase,
        .direction = Direction::kUpdate,
        .spec = AllReduceSpec{},
        .reads = std::move(values),
        .algorithms = {{.name = "all-reduce"}}};
  for (std::uint32_t index = 0; index < op.reads.size(); ++index) {
    op.may_overwrite.push_back({.write = index, .read = index});
  }
  return op;
}

// What the op before has made of it, as its recipe wants it.
void Lowering::reduce_saved(std::uint32_t id, const OpRecipe& recipe) {
  LayerState& state = layers_[id];
  std::vector<std::uint32_t> summed;
  std::vector<ValueId> shares;
  for (const Operand& write : recipe.writes) {
    if (write.role == OperandRole::kSaved && state.recipe.saved[write.index].summed_over_ranks) {
      summed.push_back(write.index);
      shares.push_back(state.saved[write.index]);
    }
  }
  if (summed.empty()) {
    return;
  }
  Op op = all_reduce(parts_.ops.back().name + ".reduce", parts_.ops.back().phase, std::move(shares));
  op.layer = id;
  for (const std::uint32_t index : summed) {
    const Value share = parts_.values[state.saved[index]];
    state.saved[index] =
        declare(layer(id).name + "." + state.recipe.saved[index].name, share.kind, share.type, share.bytes);
    op.writes.push_back(state.saved[index]);
  }
  parts_.ops.push_back(std::move(op));
}

void Lowering::reduce_bucket() {
  std::vector<ValueId> values;
  for (const auto& [id, parameter] : bucket_) {
    values.push_back(layers_[id].parameter_gradients[parameter]);
  }
  if (values.empty()) {
    return;
  }
  Op op = all_reduce("gradients.reduce" + std::to_string(buckets_++), Phase::kUpdate, values);
  for (const auto& [id, parameter] : bucket_) {
    ValueId& gradient = layers_[id].parameter_gradients[parameter];
    if (const Value local = parts_.values[gradient]; !local.persistent()) {
      std::string name = gradient_name(id, parameter);
      if (is_narrow(training_->reduces_in())) {
        name += std::string(".") + to_string(local.type.data_type);
      }
      gradient = declare(std::move(name), ValueKind::kParameterGradient, local.type, local.bytes);
    }
    op.writes.push_back(gradient);
  }
  parts_.ops.push_back(std::move(op));
  bucket_.clear();
  bucket_bytes_ = 0;
}

// The sums over all ranks of what the losses say, in every micro-step.
void Lowering::reduce_metrics() {
  Op op = all_reduce("metrics.reduce", Phase::kBackward, metrics_);
  for (ValueId& metrics : metrics_) {
    const Value local = parts_.values[metrics];
    metrics = declare(local.name + ".sum", ValueKind::kMetrics, local.type, local.bytes);
    op.writes.push_back(metrics);
  }
  parts_.ops.push_back(std::move(op));
}

// Adds what layer `id` contributes to the gradient of a feature map to what has arrived before.
void Lowering::take_contribution(std::uint32_t id, std::uint32_t feature_map, ValueId value) {
  GradientSum& gradient = gradients_[feature_map];
  ++gradient.arrived;
  if (gradient.arrived == 1) {
    gradient.value = value;
    return;
  }
  const std::string& name = network_.feature_map_name(feature_map);
  const TensorType& type = network_.type(feature_map);
  const std::string op_name = name + ".accumulate" + std::to_string(gradient.arrived - 1);
  const ValueId sum = declare(gradient.arrived == gradient.expected ? name + ".gradient" : op_name,
                              ValueKind::kGradientMap, type, type.bytes());
  add_catalog_op({.name = op_name,
                  .layer = id,
                  .phase = Phase::kBackward,
                  .direction = Direction::kForward,
                  .spec = AddSpec{},
                  .layer_inputs = {type, type},
                  .layer_outputs = {type},
                  .reads = {gradient.value, value},
                  .writes = {sum}});
  // The sum stays where the first contribution lies, however many follow.
  std::erase_if(parts_.ops.back().may_overwrite,
                [](const Overwrite& overwrite) { return overwrite.read != 0; });
  gradient.value = sum;
}

bool Lowering::last_use_of_parameter(std::uint32_t id, std::size_t position, std::size_t parameter) const {
  const LayerState& state = layers_[id];
  std::size_t last = state.kept.size();
  for (std::size_t i = 0; i < state.kept.size(); ++i) {
    const OpRecipe& recipe = state.recipe.backward[state.kept[i]];
    if (mentions(recipe.reads, OperandRole::kParameter, parameter) ||
        mentions(recipe.writes, OperandRole::kParameterGradient, parameter)) {
      last = i;
    }
  }
  return last < state.kept.size() && state.kept[last] == position;
}

// The updates that have become possible with backward op `position`.
void Lowering::lower_updates(std::uint32_t id, std::size_t position) {
  for (std::size_t index = 0; index < layers_[id].parameters.size(); ++index) {
    if (last_use_of_parameter(id, position, index)) {
      lower_update(id, index);
    }
  }
}

void Lowering::lower_update(std::uint32_t id, std::size_t index) {
  const LayerState& state = layers_[id];
  const ValueId gradient = wide_gradient(id, index);
  if (gradient == kNone) {
    return;  // not trainable, or without a way to a loss
  }
  const TapeParameter& parameter = parts_.parameters[state.first_parameter + index];
  const OpRecipe& recipe = state.updates[index].op;
  const auto resolve = [&](const Operand& operand) {
    switch (operand.role) {
      case OperandRole::kParameter:
        return parameter.value;
      case OperandRole::kParameterCopy:
        return parameter.copy;
      case OperandRole::kParameterGradient:
        return gradient;
      case OperandRole::kState:
        return operand.index < parameter.state.size() ? parameter.state[operand.index] : kNone;
      case OperandRole::kGradientNorm:
        return gradient_norm_;
      default:
        return kNone;
    }
  };
  add_parameter_op(
      {.name = parts_.values[parameter.value].name + ".update",
       .layer = id,
       .phase = Phase::kUpdate,
       .spec = std::visit([](const auto& spec) -> OpSpec { return spec; }, training_->optimizer)},
      parameter.recipe.type, recipe, resolve);
}

// Of all gradients; nothing where the losses reach no parameter.
void Lowering::lower_gradient_norm() {
  const bool scaled = training_->scales_losses();
  std::vector<ParameterRecipe> recipes;
  Op op{.name = "gradients.norm",
        .phase = Phase::kUpdate,
        .direction = Direction::kUpdate,
        .spec = GradientNormSpec{
            .max_norm = training_->clip_norm.value_or(std::numeric_limits<float>::infinity()),
            .loss_scaled = scaled}};
  for (std::uint32_t id = 0; id < layers_.size(); ++id) {
    const LayerState& state = layers_[id];
    for (std::size_t index = 0; index < state.parameters.size(); ++index) {
      if (const ValueId gradient = wide_gradient(id, index); gradient != kNone) {
        recipes.push_back(state.recipe.parameters[index]);
        op.reads.push_back(gradient);
        op.layer_inputs.push_back(recipes.back().type);
      }
    }
  }
  if (recipes.empty()) {
    return;
  }
  const TensorType type = floats(scaled ? sizeof(LossScaledNorm) : 2 * sizeof(float));
  gradient_norm_ = declare("gradients.norm.value", ValueKind::kGradientNorm, type, type.bytes());
  const OpRecipe recipe = catalog_.gradient_norm_recipe(std::get<GradientNormSpec>(op.spec), recipes);
  if (scaled) {
    op.reads.push_back(parts_.loss_scale);
    op.layer_inputs.push_back(floats(sizeof(LossScale)));
  }
  op.layer_outputs = {type};
  op.writes = {gradient_norm_};
  op.algorithms = recipe.algorithms;
  op.cost = recipe.cost;
  parts_.ops.push_back(std::move(op));
}

void Lowering::declare_loss_scale() {
  const TensorType type = floats(sizeof(LossScale));
  parts_.loss_scale = declare("loss_scale", ValueKind::kLossScale, type, type.bytes());
}

// Adds an op that is no layer's own, with what the catalog says of a layer of its kind.
void Lowering::add_catalog_op(Op op) {
  const LayerRecipe recipe = catalog_.recipe(op.spec, op.layer_inputs, op.layer_outputs, Mode::kInference);
  if (recipe.forward.size() != 1) {
    reject_recipe(op.name, "consists of " + std::to_string(recipe.forward.size()) + " ops");
  }
  op.may_overwrite = recipe.forward[0].may_overwrite;
  op.algorithms = recipe.forward[0].algorithms;
  op.cost = recipe.forward[0].cost;
  parts_.ops.push_back(std::move(op));
}

// What a loss contributes to the gradient of its prediction, times the loss scale.
ValueId Lowering::scale_gradient(std::uint32_t id, ValueId gradient) {
  if (!training_->scales_losses()) {
    return gradient;
  }
  const Value own = parts_.values[gradient];
  parts_.values[gradient].name += ".unscaled";
  const ValueId scaled = declare(own.name, own.kind, own.type, own.bytes);
  add_catalog_op({.name = layer(id).name + ".scale",
                  .layer = id,
                  .phase = Phase::kBackward,
                  .direction = Direction::kBackwardData,
                  .spec = GradientScalingSpec{},
                  .layer_inputs = {own.type, floats(sizeof(LossScale))},
                  .layer_outputs = {own.type},
                  .reads = {gradient, parts_.loss_scale},
                  .writes = {scaled}});
  return scaled;
}

void Lowering::lower_loss_scale_update() {
  add_catalog_op({.name = "loss_scale.update",
                  .phase = Phase::kUpdate,
                  .direction = Direction::kUpdate,
                  .spec = LossScaleUpdateSpec{.scaling = training_->loss_scaling},
                  .layer_inputs = {floats(sizeof(LossScale)), floats(sizeof(LossScaledNorm))},
                  .layer_outputs = {floats(sizeof(LossScale))},
                  .reads = {parts_.loss_scale, gradient_norm_},
                  .writes = {parts_.loss_scale}});
}

void Lowering::lower_all_updates() {
  for (std::uint32_t id = static_cast<std::uint32_t>(layers_.size()); id-- > 0;) {
    for (std::size_t index = 0; index < layers_[id].parameters.size(); ++index) {
      lower_update(id, index);
    }
  }
}

// Metrics first, then the network's outputs, then the norm of the gradients, by which a training that
// diverges is seen, then what was asked for.
void Lowering::list_results() {
  for (const Layer& each : network_.layers()) {
    if (is_loss(each.spec)) {
      parts_.results.push_back(metrics_[parts_.loss_weights.size()]);
      parts_.loss_weights.push_back(loss_weight(each.spec));
    }
  }
  const auto add = [this](ValueId value) {
    if (std::ranges::find(parts_.results, value) == parts_.results.end()) {
      parts_.results.push_back(value);
    }
  };
  for (const std::uint32_t output : network_.outputs()) {
    add(feature_maps_[output]);
  }
  if (training_ == nullptr) {
    return;
  }
  if (gradient_norm_ != kNone) {
    add(gradient_norm_);
  }
  for (const std::string& name : training_->results) {
    const auto found = std::ranges::find(parts_.values, name, &Value::name);
    if (found == parts_.values.end()) {
      throw InvalidArgument("network " + network_.name() + ": there is no value '" + name +
                            "' that the host could be given");
    }
    if (found->persistent() || found->loaded()) {
      throw InvalidArgument("network " + network_.name() + ": '" + name + "' is not made in a step");
    }
    add(static_cast<ValueId>(found - parts_.values.begin()));
  }
}

std::shared_ptr<const Tape> Lowering::run() {
  parts_.model = network_.name();
  find_ways_to_losses();
  declare_inputs();
  if (training_ != nullptr && training_->scales_losses()) {
    declare_loss_scale();
  }
  const auto count = static_cast<std::uint32_t>(layers_.size());
  for (std::uint32_t id = 0; id < count; ++id) {
    describe(id);
    fetch_recipe(id);
    declare_parameters(id);
    const bool below =
        std::ranges::any_of(layer(id).inputs, [&](std::uint32_t i) { return gradients_[i].wanted; });
    gradients_[layer(id).output].wanted =
        below || std::ranges::any_of(layers_[id].recipe.parameters, &ParameterRecipe::trainable);
    lower_forward(id);
  }
  for (const Layer& each : network_.layers()) {
    if (is_loss(each.spec)) {
      metrics_.push_back(feature_maps_[each.output]);
    }
  }
  if (training_ != nullptr) {
    if (training_->ranks > 1) {
      reduce_metrics();
    }
    for (std::uint32_t id = count; id-- > 0;) {
      if (reaches_loss_[id]) {
        choose_backward_ops(id);
        expect_contributions(id);
      }
    }
    for (std::uint32_t id = count; id-- > 0;) {
      lower_backward(id);
    }
    reduce_bucket();
    if (looks_at_all_gradients()) {
      lower_gradient_norm();
    }
    if (updates_follow_backward()) {
      lower_all_updates();
    }
    if (training_->scales_losses() && gradient_norm_ != kNone) {
      lower_loss_scale_update();
    }
  }
  list_results();
  return std::make_shared<const Tape>(std::move(parts_));
}

}  // namespace

std::shared_ptr<const Tape> lower_to_tape(const Network& network, const OpCatalog& catalog,
                                          const TrainingOptions& options) {
  if (options.clip_norm && !(*options.clip_norm > 0 && std::isfinite(*options.clip_norm))) {
    throw InvalidArgument("gradients clipped to a norm of " + std::to_string(*options.clip_norm) +
                          ": it must be positive");
  }
  const LossScaling& scaling = options.loss_scaling;
  if (!(scaling.initial >= kLeastLossScale && std::isfinite(scaling.initial))) {
    throw InvalidArgument("a loss scale of " + std::to_string(scaling.initial) +
                          ": it must be a number from 2^-24 up");
  }
  if (!(scaling.growth >= 1 && std::isfinite(scaling.growth)) ||
      !(scaling.backoff > 0 && scaling.backoff < 1) || scaling.growth_interval == 0) {
    throw InvalidArgument("loss scaling: growth " + std::to_string(scaling.growth) +
                          " must be at least 1, backoff " + std::to_string(scaling.backoff) +
                          " above 0 and below 1, growth interval " + std::to_string(scaling.growth_interval) +
                          " at least 1");
  }
  if (!is_floating(options.reduce_precision)) {
    throw InvalidArgument(std::string("gradients summed over ranks in ") +
                          to_string(options.reduce_precision) + ": there are fp32, fp16 and bf16");
  }
  if (options.ranks == 0 || options.micro_steps == 0 || options.bucket_bytes == 0) {
    throw InvalidArgument("training by " + std::to_string(options.ranks) + " ranks, " +
                          std::to_string(options.micro_steps) + " micro-steps an update, in buckets of " +
                          std::to_string(options.bucket_bytes) + " bytes: all must be at least 1");
  }
  return Lowering(network.with_precision(options.precision), catalog, &options).run();
}

std::shared_ptr<const Tape> lower_to_evaluation_tape(const Network& network, const OpCatalog& catalog,
                                                     const PrecisionOptions& precision) {
  return Lowering(network.with_precision(precision), catalog, nullptr).run();
}

}  // namespace vdnn
