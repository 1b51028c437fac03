#include "tests/ops/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "src/tape/narrow_values.h"

namespace vdnn::testing {

OpHarness::OpHarness(OpLibrary& library, const LayerCase& layer, Mode mode, std::size_t shift)
    : library_(library), reads_copies_(true), inputs_(layer.inputs), outputs_{layer.output}, shift_(shift) {
  LayerRecipe recipe = library.catalog().recipe(layer.spec, inputs_, outputs_, mode);
  parameters_ = std::move(recipe.parameters);
  saved_ = std::move(recipe.saved);
  gradient_statistics_ = std::move(recipe.gradient_statistics);
  ops_ = std::move(recipe.forward);
  forward_ops_ = ops_.size();
  ops_.insert(ops_.end(), recipe.backward.begin(), recipe.backward.end());
  build_tape(layer.spec, Phase::kBackward);
}

OpHarness::OpHarness(OpLibrary& library, const OptimizerSpec& spec, const ParameterRecipe& parameter,
                     Scaled scaled)
    : library_(library), parameters_{parameter} {
  norm_floats_ = scaled == Scaled::kForTheLoss ? kLossScaledNormFloats : 2;
  const bool clipped = scaled != Scaled::kNot;
  UpdateRecipe recipe = library.catalog().update_recipe(spec, parameter, clipped);
  saved_ = std::move(recipe.state);
  ops_ = {std::move(recipe.op)};
  build_tape(std::visit([](const auto& known) -> OpSpec { return known; }, spec), Phase::kUpdate);
}

OpHarness::OpHarness(OpLibrary& library, const GradientNormSpec& spec,
                     const std::vector<ParameterRecipe>& parameters)
    : library_(library), parameters_(parameters) {
  norm_floats_ = spec.loss_scaled ? kLossScaledNormFloats : 2;
  ops_ = {library.catalog().gradient_norm_recipe(spec, parameters)};
  build_tape(spec, Phase::kUpdate);
}

OpHarness::OpHarness(OpLibrary& library, const GradientSumSpec& spec, const ParameterRecipe& parameter)
    : library_(library), parameters_{parameter} {
  ops_ = {library.catalog().gradient_sum_recipe(parameter)};
  build_tape(spec, Phase::kBackward);
}

TensorType OpHarness::copy_type(const ParameterRecipe& parameter) {
  return {.data_type = parameter.copy.value_or(parameter.type.data_type), .dims = parameter.type.dims};
}

TensorType OpHarness::type_of(const Operand& operand) const {
  switch (operand.role) {
    case OperandRole::kInput:
    case OperandRole::kInputGradient:
      return inputs_.at(operand.index);
    case OperandRole::kOutput:
    case OperandRole::kOutputGradient:
      return outputs_.at(operand.index);
    case OperandRole::kParameter: {
      const ParameterRecipe& parameter = parameters_.at(operand.index);
      return reads_copies_ ? copy_type(parameter) : parameter.type;
    }
    case OperandRole::kParameterCopy:
      return copy_type(parameters_.at(operand.index));
    case OperandRole::kParameterGradient:
    case OperandRole::kGradientSum:
      return parameters_.at(operand.index).type;
    case OperandRole::kGradientNorm:
      return {.dims = {norm_floats_}};
    case OperandRole::kLossScale:
      return {.dims = {sizeof(LossScale) / sizeof(float)}};
    case OperandRole::kGradientStatistic:
      return gradient_statistics_.at(operand.index).type;
    case OperandRole::kSaved:
    case OperandRole::kState:
      break;
  }
  return saved_.at(operand.index).type;
}

bool OpHarness::is_filter_like(const Operand& operand) const {
  return operand.role == OperandRole::kParameter || operand.role == OperandRole::kParameterCopy ||
         operand.role == OperandRole::kParameterGradient || operand.role == OperandRole::kGradientSum;
}

std::uint64_t OpHarness::bytes_of(const Operand& operand) const {
  return is_filter_like(operand)
             ? parameters_.at(operand.index).stored_elements() * size_of(type_of(operand).data_type)
             : type_of(operand).bytes();
}

// Values that no op of this tape makes are inputs.
ValueKind OpHarness::kind_of(const Operand& operand) const {
  if (operand.role == OperandRole::kParameter) {
    return reads_copies_ && parameters_.at(operand.index).copy ? ValueKind::kParameterCopy
                                                               : ValueKind::kParameter;
  }
  if (operand.role == OperandRole::kParameterCopy) {
    return ValueKind::kParameterCopy;
  }
  if (operand.role == OperandRole::kState) {
    return ValueKind::kOptimizerState;
  }
  if (operand.role == OperandRole::kGradientSum) {
    return ValueKind::kGradientSum;
  }
  if (operand.role == OperandRole::kLossScale) {
    return ValueKind::kLossScale;
  }
  const bool made = std::ranges::any_of(
      ops_, [&](const OpRecipe& op) { return std::ranges::find(op.writes, operand) != op.writes.end(); });
  return made ? ValueKind::kFeatureMap : ValueKind::kInput;
}

ValueId OpHarness::declare(const Operand& operand) {
  const auto [found, fresh] = values_.try_emplace(key(operand), static_cast<ValueId>(parts_.values.size()));
  if (fresh) {
    parts_.values.push_back({.name = "value" + std::to_string(found->second),
                             .kind = kind_of(operand),
                             .type = type_of(operand),
                             .bytes = bytes_of(operand)});
    if (parts_.values.back().loaded()) {
      parts_.inputs.push_back(found->second);
    }
    buffers_[key(operand)] = std::make_unique<GuardedBuffer>(bytes_of(operand), shift_);
  }
  return found->second;
}

void OpHarness::build_tape(const OpSpec& spec, Phase last_phase) {
  for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
    TapeParameter parameter{
        .value = declare({OperandRole::kParameter, i}), .state = {}, .recipe = parameters_[i]};
    if (parameters_[i].copy && !reads_copies_) {
      parameter.copy = declare({OperandRole::kParameterCopy, i});
    } else if (parameters_[i].copy) {  // the ops read the copy instead of the parameter
      parameter.copy = parameter.value;
      parameter.value = static_cast<ValueId>(parts_.values.size());
      parts_.values.push_back({.name = "parameter" + std::to_string(i),
                               .kind = ValueKind::kParameter,
                               .type = parameters_[i].type,
                               .bytes = parameters_[i].storage_bytes});
    }
    parts_.parameters.push_back(std::move(parameter));
  }
  parts_.model = "one op";
  parts_.layers = {{.name = "layer"}};
  for (const OpRecipe& recipe : ops_) {
    Op op{.name = "op" + std::to_string(parts_.ops.size()),
          .phase = parts_.ops.size() < forward_ops_ ? Phase::kForward : last_phase,
          .direction = recipe.direction,
          .position = static_cast<std::uint32_t>(
              parts_.ops.size() < forward_ops_ ? parts_.ops.size() : parts_.ops.size() - forward_ops_),
          .spec = spec,
          .layer_inputs = inputs_,
          .layer_outputs = outputs_,
          .reads = {},
          .writes = {},
          .may_overwrite = recipe.may_overwrite,
          .algorithms = recipe.algorithms,
          .cost = recipe.cost};
    for (const Operand& operand : recipe.reads) {
      op.reads.push_back(declare(operand));
    }
    for (const Operand& operand : recipe.writes) {
      op.writes.push_back(declare(operand));
    }
    parts_.ops.push_back(std::move(op));
  }
  algorithms_.assign(parts_.ops.size(), 0);
  tape_ = std::make_unique<Tape>(parts_);
  program_ = library_.compile(*tape_, algorithms_);
}

OpId OpHarness::writer(const Operand& operand) const {
  for (OpId op = 0; op < ops_.size(); ++op) {
    if (std::ranges::find(ops_[op].writes, operand) != ops_[op].writes.end()) {
      return op;
    }
  }
  ADD_FAILURE() << "no op writes this operand";
  return 0;
}

void OpHarness::set(const Operand& operand, const reference::Array& array) {
  const std::vector<float> data = to_channels_last(array);
  const DataType type = type_of(operand).data_type;
  std::vector<std::byte> wide(buffer(operand).as<std::byte>().size() / size_of(type) * sizeof(float));
  if (is_filter_like(operand)) {
    program_->pack_parameter(operand.index, data, wide.data());
  } else {
    std::memcpy(wide.data(), data.data(), data.size() * sizeof(float));
  }
  if (is_narrow(type)) {
    narrow_in_place(type, wide.data(), wide.size() / sizeof(float));
  }
  std::ranges::copy_n(wide.begin(), static_cast<std::ptrdiff_t>(buffer(operand).as<std::byte>().size()),
                      buffer(operand).as<std::byte>().begin());
}

reference::Array OpHarness::get(const Operand& operand) {
  const TensorType type = type_of(operand);
  std::vector<float> data = widened(type.data_type, buffer(operand).as<std::byte>());
  if (is_filter_like(operand)) {
    const std::vector<float> stored = std::move(data);
    data.resize(type.elements());
    program_->unpack_parameter(operand.index, stored.data(), data);
  }
  return from_channels_last(type.dims, data);
}

void OpHarness::compile(OpId op, std::uint32_t algorithm) {
  if (algorithms_[op] != algorithm) {
    algorithms_[op] = algorithm;
    program_ = library_.compile(*tape_, algorithms_);
  }
}

void OpHarness::run(OpId op, const RunOptions& options) {
  compile(op, options.algorithm);
  const OpRecipe& recipe = ops_[op];
  GuardedBuffer workspace(recipe.algorithms[options.algorithm].workspace_bytes, shift_);
  std::vector<AddressRange> reads;
  std::vector<AddressRange> writes;
  for (const Operand& operand : recipe.reads) {
    buffer(operand).set_read_only(true);
    reads.push_back(buffer(operand).range());
  }
  for (std::uint32_t i = 0; i < recipe.writes.size(); ++i) {
    GuardedBuffer& written = buffer(recipe.writes[i]);
    if (options.in_place && options.in_place->write == i) {
      buffer(recipe.reads[options.in_place->read]).set_read_only(false);
      writes.push_back(reads[options.in_place->read]);
    } else if (std::ranges::find(recipe.reads, recipe.writes[i]) != recipe.reads.end()) {
      written.set_read_only(false);  // an update is always in place
      writes.push_back(written.range());
    } else {
      if (!options.keeps_writes) {
        written.poison();
      }
      writes.push_back(written.range());
    }
  }
  program_->run(op, {.reads = reads, .writes = writes, .workspace = workspace.range()}, options.scalars,
                nullptr);
  EXPECT_TRUE(workspace.slack_is_intact()) << "the op wrote beside the workspace";
  for (auto& [which, each] : buffers_) {
    each->set_read_only(false);
    EXPECT_TRUE(each->slack_is_intact()) << "the op wrote beside an operand";
  }
}

}  // namespace vdnn::testing
