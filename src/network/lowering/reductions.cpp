#include "src/network/lowering/reductions.h"

#include <cstddef>

namespace vdnn::lowering {

namespace {

// Makes an op that sums `values` over ranks; the caller adds its writes. Each write may overwrite its read.
Op all_reduce(std::string name, Phase phase, std::vector<ValueId> values) {
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

}  // namespace

void Reductions::reduce_shares(std::uint32_t id, const OpRecipe& recipe) {
  std::vector<Operand> shared;
  std::vector<ValueId> shares;
  for (const Operand& write : recipe.writes) {
    if (is_passed_on(write.role) && state_.passed_on(id, write).recipe.summed_over_ranks) {
      shared.push_back(write);
      shares.push_back(state_.passed_on(id, write).value);
    }
  }
  if (shared.empty()) {
    return;
  }
  Op op =
      all_reduce(state_.parts.ops.back().name + ".reduce", state_.parts.ops.back().phase, std::move(shares));
  op.layer = id;
  for (const Operand& operand : shared) {
    const auto [own, value] = state_.passed_on(id, operand);
    const Value share = state_.parts.values[value];
    value = state_.declare(state_.layer(id).name + "." + own.name, share.kind, share.type, share.bytes);
    op.writes.push_back(value);
  }
  state_.parts.ops.push_back(std::move(op));
}

// Sums the metrics of the losses over ranks, in every micro-step.
void Reductions::reduce_metrics() {
  if (options().ranks == 1) {
    return;
  }
  Op op = all_reduce("metrics.reduce", Phase::kBackward, state_.metrics);
  for (ValueId& metrics : state_.metrics) {
    const Value local = state_.parts.values[metrics];
    metrics = state_.declare(local.name + ".sum", ValueKind::kMetrics, local.type, local.bytes);
    op.writes.push_back(metrics);
  }
  state_.parts.ops.push_back(std::move(op));
}

void Reductions::add_gradient(std::uint32_t id, std::uint32_t parameter) {
  if (is_narrow(options().reduces_in())) {
    narrow_gradient(id, parameter);
  }
  if (options().ranks > 1) {
    bucket_.emplace_back(id, parameter);
    bucket_bytes_ += state_.parts.values[state_.layers[id].parameter_gradients[parameter]].bytes;
    if (bucket_bytes_ >= options().bucket_bytes) {
      reduce_bucket();
    }
  }
}

void Reductions::reduce_bucket() {
  std::vector<ValueId> values;
  for (const auto& [id, parameter] : bucket_) {
    values.push_back(state_.layers[id].parameter_gradients[parameter]);
  }
  if (values.empty()) {
    return;
  }
  Op op = all_reduce("gradients.reduce" + std::to_string(buckets_++), Phase::kUpdate, values);
  for (const auto& [id, parameter] : bucket_) {
    ValueId& gradient = state_.layers[id].parameter_gradients[parameter];
    if (const Value local = state_.parts.values[gradient]; !local.persistent()) {
      std::string name = gradient_name(id, parameter);
      if (is_narrow(options().reduces_in())) {
        name += std::string(".") + to_string(local.type.data_type);
      }
      gradient = state_.declare(std::move(name), ValueKind::kParameterGradient, local.type, local.bytes);
    }
    op.writes.push_back(gradient);
  }
  state_.parts.ops.push_back(std::move(op));
  bucket_.clear();
  bucket_bytes_ = 0;
}

// The name of the gradient that ranks sum.
std::string Reductions::gradient_name(std::uint32_t id, std::size_t parameter) const {
  return state_.parts.values[state_.layers[id].parameters[parameter]].name +
         (options().micro_steps > 1 ? ".gradient_sum" : ".gradient");
}

// Converts the elements in memory order, so the shape of the parameter does not matter. The op belongs to the
// update, so it runs once for all micro-steps.
ValueId Reductions::convert_gradient(std::uint32_t id, ValueId gradient, DataType type,
                                     const std::string& name) {
  const Value from = state_.parts.values[gradient];
  const std::uint64_t elements = from.bytes / size_of(from.type.data_type);
  TensorType logical = from.type;
  logical.data_type = type;
  const ValueId converted =
      state_.declare(name, ValueKind::kParameterGradient, logical, elements * size_of(type));
  const Dims flat{static_cast<std::int64_t>(elements)};
  state_.add_catalog_op({.name = from.name + ".to_" + to_string(type),
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

// Converts the gradient to the type in which ranks send it. With micro-steps, the gradient
// is the sum over them, which was computed in fp32.
void Reductions::narrow_gradient(std::uint32_t id, std::uint32_t parameter) {
  const DataType type = options().reduce_precision;
  ValueId& gradient = state_.layers[id].parameter_gradients[parameter];
  gradient = convert_gradient(id, gradient, type, gradient_name(id, parameter) + ".local." + to_string(type));
}

ValueId Reductions::wide_gradient(std::uint32_t id, std::size_t parameter) {
  ValueId& gradient = state_.layers[id].parameter_gradients[parameter];
  if (gradient != kNone && is_narrow(state_.parts.values[gradient].type.data_type)) {
    // With micro-steps, the rank's own sum has the name without suffix.
    const char* const suffix = options().micro_steps > 1 ? ".reduced" : "";
    gradient = convert_gradient(id, gradient, DataType::kF32, gradient_name(id, parameter) + suffix);
  }
  return gradient;
}

}  // namespace vdnn::lowering
