#include "vdnn/tape.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "vdnn/size.h"

namespace vdnn {

namespace {

[[noreturn]] void reject(const std::string& where, const std::string& why) {
  throw InvalidArgument("tape: " + where + ": " + why);
}

void check_id(const std::string& where, const std::string& role, ValueId id, std::size_t values) {
  if (id >= values) {
    reject(where, role + " names value " + std::to_string(id) + " of " + std::to_string(values));
  }
}

template <typename Named>
void check_unique(const std::vector<Named>& all, const std::string& kind) {
  std::unordered_set<std::string_view> names;
  for (const Named& one : all) {
    if (!names.insert(one.name).second) {
      reject(one.name, "the name of a " + kind + " repeats");
    }
  }
}

bool contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::ranges::find(ids, id) != ids.end();
}

void check_op(const Op& op, std::size_t values, std::size_t layers) {
  if (op.layer && *op.layer >= layers) {
    reject(op.name, "belongs to layer " + std::to_string(*op.layer) + " of " + std::to_string(layers));
  }
  for (const ValueId id : op.reads) {
    check_id(op.name, "a read", id, values);
  }
  for (const ValueId id : op.writes) {
    check_id(op.name, "a write", id, values);
  }
  if (op.algorithms.empty()) {
    reject(op.name, "has no algorithm");
  }
  for (const Overwrite& overwrite : op.may_overwrite) {
    if (overwrite.write >= op.writes.size() || overwrite.read >= op.reads.size()) {
      reject(op.name, "may overwrite read " + std::to_string(overwrite.read) + " with write " +
                          std::to_string(overwrite.write) + ", and one of them does not exist");
    }
  }
}

// Persistent values are rewritten in place: an op that writes a persistent value also reads it, so that the
// value's last reader is its last user. Copies of parameters are the exception: the op that writes a copy
// reads the parameter, not the copy. The forward pass writes running statistics, and the backward pass writes
// sums of gradients. Updates write all other persistent values.
void check_persistent_write(const Op& op, const Value& value, ValueId id, bool statistic) {
  const Phase phase = statistic                                          ? Phase::kForward
                      : std::holds_alternative<GradientSumSpec>(op.spec) ? Phase::kBackward
                                                                         : Phase::kUpdate;
  if (op.phase != phase) {
    reject(op.name, "writes " + value.name + ", which is persistent, and is not an update");
  }
  if (value.kind != ValueKind::kParameterCopy && !contains(op.reads, id)) {
    reject(op.name, "rewrites " + value.name + ", which is persistent, without reading it");
  }
}

void check_results(const Tape::Parts& parts) {
  if (parts.loss_weights.size() > parts.results.size()) {
    reject("results", std::to_string(parts.results.size()) + " of them, and " +
                          std::to_string(parts.loss_weights.size()) + " losses");
  }
  std::vector<ValueId> listed;
  for (std::size_t i = 0; i < parts.results.size(); ++i) {
    const ValueId id = parts.results[i];
    check_id("results", "an entry", id, parts.values.size());
    const Value& value = parts.values[id];
    if (value.persistent() || value.loaded() || contains(listed, id)) {
      reject("results", value.name + (contains(listed, id) ? " is listed twice" : " is not made by an op"));
    }
    if ((value.kind == ValueKind::kMetrics) != (i < parts.loss_weights.size())) {
      reject("results", value.name + " is of another kind: metrics come first, one per loss");
    }
    listed.push_back(id);
  }
}

void check_listed(const Tape::Parts& parts) {
  std::vector<ValueId> loaded;
  for (const ValueId id : parts.inputs) {
    check_id("inputs", "an entry", id, parts.values.size());
    const Value& value = parts.values[id];
    if (!value.loaded() || contains(loaded, id)) {
      reject("inputs", value.name + (value.loaded() ? " is listed twice" : " is not loaded"));
    }
    loaded.push_back(id);
  }
  for (const TapeParameter& parameter : parts.parameters) {
    check_id("parameters", "an entry", parameter.value, parts.values.size());
    if (parts.values[parameter.value].kind != ValueKind::kParameter) {
      reject("parameters", parts.values[parameter.value].name + " is not a parameter");
    }
    if (parameter.copy != kNone) {
      check_id("parameters", "a copy", parameter.copy, parts.values.size());
      if (parts.values[parameter.copy].kind != ValueKind::kParameterCopy) {
        reject("parameters", parts.values[parameter.copy].name + " is not a copy of a parameter");
      }
    }
    for (const ValueId id : parameter.state) {
      check_id("parameters", "a state", id, parts.values.size());
      if (parts.values[id].kind != ValueKind::kOptimizerState) {
        reject("parameters", parts.values[id].name + " is not a state of the optimizer");
      }
    }
  }
  for (const TapeParameter& parameter : parts.parameters) {
    if (parameter.gradient_sum != kNone) {
      check_id("parameters", "a sum of gradients", parameter.gradient_sum, parts.values.size());
      if (parts.values[parameter.gradient_sum].kind != ValueKind::kGradientSum) {
        reject("parameters", parts.values[parameter.gradient_sum].name + " is not a sum of gradients");
      }
    }
  }
  if (parts.loss_scale != kNone) {
    check_id("loss scale", "a value", parts.loss_scale, parts.values.size());
    if (parts.values[parts.loss_scale].kind != ValueKind::kLossScale) {
      reject("loss scale", parts.values[parts.loss_scale].name + " is not the loss scale");
    }
  }
  check_results(parts);
}

}  // namespace

Tape::Tape(Parts parts) : parts_(std::move(parts)) {
  check_names();
  check_operands();
  index_uses();
}

void Tape::check_names() const {
  check_unique(parts_.values, "value");
  check_unique(parts_.ops, "op");
  check_unique(parts_.layers, "layer");
}

void Tape::check_operands() const {
  check_listed(parts_);
  bool forward = true;
  for (const Op& op : parts_.ops) {
    check_op(op, parts_.values.size(), parts_.layers.size());
    if (op.phase == Phase::kForward && !forward) {
      reject(op.name, "is a forward op and comes after the forward pass");
    }
    forward = op.phase == Phase::kForward;
  }
}

void Tape::index_uses() {
  producers_.assign(parts_.values.size(), kNone);
  readers_.resize(parts_.values.size());
  std::unordered_set<ValueId> statistics;
  for (const TapeParameter& parameter : parts_.parameters) {
    if (!parameter.recipe.trainable) {
      statistics.insert(parameter.value);
    }
  }
  for (OpId id = 0; id < parts_.ops.size(); ++id) {
    const Op& op = parts_.ops[id];
    forward_ops_ += op.phase == Phase::kForward ? 1 : 0;
    for (const ValueId read : op.reads) {
      const Value& value = parts_.values[read];
      if (!value.persistent() && !value.loaded() && producers_[read] == kNone) {
        reject(op.name, "reads " + value.name + " before it is made");
      }
      if (value.loaded() && !contains(parts_.inputs, read)) {
        reject(op.name, "reads " + value.name + ", which the inputs do not list");
      }
      if (readers_[read].empty() || readers_[read].back() != id) {
        readers_[read].push_back(id);
      }
    }
    for (const ValueId write : op.writes) {
      const Value& value = parts_.values[write];
      if (value.persistent()) {
        check_persistent_write(op, value, write, statistics.contains(write));
        continue;
      }
      if (value.loaded()) {
        reject(op.name, "writes " + value.name + ", which is loaded");
      }
      if (producers_[write] != kNone) {
        reject(op.name,
               "makes " + value.name + ", which " + parts_.ops[producers_[write]].name + " has made already");
      }
      producers_[write] = id;
    }
  }
  for (ValueId id = 0; id < parts_.values.size(); ++id) {
    const Value& value = parts_.values[id];
    if (!value.persistent() && !value.loaded() && producers_[id] == kNone) {
      reject(value.name, "no op makes this value");
    }
  }
}

bool Tape::collective() const {
  return std::ranges::any_of(parts_.ops, &Op::collective);
}

ValueId Tape::find_value(std::string_view name) const {
  const auto found = std::ranges::find(parts_.values, name, &Value::name);
  return found == parts_.values.end() ? kNone : static_cast<ValueId>(found - parts_.values.begin());
}

OpId Tape::last_use(ValueId id) const {
  return readers_[id].empty() ? producers_[id] : readers_[id].back();
}

std::uint64_t Tape::feature_map_bytes() const {
  std::uint64_t sum = 0;
  for (const Value& value : parts_.values) {
    if (value.kind == ValueKind::kFeatureMap || value.kind == ValueKind::kInput) {
      sum = checked_add(sum, value.bytes);
    }
  }
  return sum;
}

std::uint64_t Tape::weight_bytes() const {
  std::uint64_t sum = 0;
  for (const TapeParameter& parameter : parts_.parameters) {
    sum = checked_add(sum, parts_.values[parameter.value].bytes);
  }
  return sum;
}

}  // namespace vdnn
