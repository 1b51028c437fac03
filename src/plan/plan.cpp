#include "vdnn/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "src/plan/overwrite.h"
#include "src/plan/readers.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

std::string to_string(Policy policy) {
  switch (policy) {
    case Policy::kBaseline:
      return "baseline";
    case Policy::kOffloadNone:
      return "none";
    case Policy::kOffloadAll:
      return "all";
    case Policy::kOffloadConv:
      return "conv";
    case Policy::kDynamic:
      return "dyn";
    case Policy::kOptimal:
      return "optimal";
  }
  return "?";
}

std::string to_string(AlgorithmPreference preference) {
  return preference == AlgorithmPreference::kMemory ? "memory" : "performance";
}

namespace {

// The measured seconds of the algorithm; infinite if it was not measured.
double measured_seconds(const Op& op, std::uint32_t algorithm) {
  const Cost& cost = op.cost_with(algorithm);
  return cost.seconds > 0 && !cost.modelled ? cost.seconds : std::numeric_limits<double>::infinity();
}

// The indices of the op's algorithms, from the most to the least preferred.
std::vector<std::uint32_t> by_preference(const Op& op, AlgorithmPreference preference) {
  std::vector<std::uint32_t> order(op.algorithms.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return preference == AlgorithmPreference::kMemory
               ? op.algorithms[a].workspace_bytes < op.algorithms[b].workspace_bytes
               : measured_seconds(op, a) < measured_seconds(op, b);
  });
  return order;
}

std::uint32_t recorded_algorithm(const Op& op, const PlanOptions& options) {
  const auto record = options.recorded.find(op.name);
  if (record == options.recorded.end()) {
    throw InvalidArgument(op.name + ": no algorithm is recorded for it");
  }
  const auto found = std::ranges::find(op.algorithms, record->second, &Algorithm::name);
  if (found == op.algorithms.end()) {
    throw InvalidArgument(op.name + ": the recorded algorithm '" + record->second +
                          "' does not exist on this device");
  }
  return static_cast<std::uint32_t>(found - op.algorithms.begin());
}

void require_recorded_ops(const Tape& tape, const PlanOptions& options) {
  const auto stray = std::ranges::find_if(options.recorded, [&](const auto& record) {
    return std::ranges::find(tape.ops(), record.first, &Op::name) == tape.ops().end();
  });
  if (stray != options.recorded.end()) {
    throw InvalidArgument(stray->first + ": the algorithm '" + stray->second + "' is recorded for it, but '" +
                          tape.model() + "' has no such op");
  }
}

const Algorithm& least_algorithm(const Op& op) {
  return *std::ranges::min_element(op.algorithms, {}, &Algorithm::workspace_bytes);
}

// The least workspace limit under which every op has an algorithm.
std::uint64_t least_workspace_limit(const Tape& tape) {
  std::uint64_t limit = 0;
  for (const Op& op : tape.ops()) {
    limit = std::max(limit, least_algorithm(op).workspace_bytes);
  }
  return limit;
}

std::uint32_t choose_algorithm(const Tape& tape, const Op& op, const PlanOptions& options) {
  if (!options.recorded.empty() && op.recorded()) {
    return recorded_algorithm(op, options);
  }
  for (const std::uint32_t index : by_preference(op, options.preference)) {
    if (!options.workspace_limit || op.algorithms[index].workspace_bytes <= *options.workspace_limit) {
      return index;
    }
  }
  const Algorithm& least = least_algorithm(op);
  throw InvalidArgument(
      op.name + ": no algorithm obeys the workspace limit of " + format_size(*options.workspace_limit) +
      "; the least is " + least.name + " with " + format_size(least.workspace_bytes) +
      "; all ops of the network have an algorithm within " + format_size(least_workspace_limit(tape)));
}

// Whether vDNN virtualises the feature map. It does if the backward pass reads the map, but no backward op of
// the classifier does.
bool is_virtualised(const Tape& tape, ValueId id) {
  const ValueKind kind = tape.value(id).kind;
  if (kind != ValueKind::kFeatureMap && kind != ValueKind::kInput) {
    return false;
  }
  bool read_in_backward = false;
  for (const OpId reader : tape.readers(id)) {
    if (tape.op(reader).phase == Phase::kBackward) {
      read_in_backward = true;
      const TapeLayer* const layer = tape.layer_of(tape.op(reader));
      if (layer != nullptr && layer->classifier) {
        return false;
      }
    }
  }
  return read_in_backward;
}

bool is_read_by_convolution(const Tape& tape, ValueId id) {
  return std::ranges::any_of(tape.readers(id), [&](OpId reader) {
    const Op& op = tape.op(reader);
    const TapeLayer* const layer = tape.layer_of(op);
    return op.phase == Phase::kForward && layer != nullptr && layer->convolution;
  });
}

bool is_offloaded(const Tape& tape, ValueId id, Policy policy) {
  switch (policy) {
    case Policy::kBaseline:
    case Policy::kOffloadNone:
    case Policy::kDynamic:
    case Policy::kOptimal:
      return false;
    case Policy::kOffloadAll:
      return is_virtualised(tape, id);
    case Policy::kOffloadConv:
      return is_virtualised(tape, id) && is_read_by_convolution(tape, id);
  }
  return false;
}

// The op with which a feature map is offloaded: its last reader in the forward pass, or its producer if the
// forward pass does not read it. This is vDNN's rule for forks.
OpId last_forward_use(const Tape& tape, ValueId id) {
  const OpId reader = last_forward_reader(tape, id);
  return reader == kNone ? tape.producer(id) : reader;
}

// The prefetch window of the vDNN paper (section III-B, figure 10). Layers have the tape's order. An op
// without a layer opens no window.
class PrefetchWindow {
 public:
  PrefetchWindow(const Tape& tape, std::vector<Transfer>& transfers)
      : tape_(tape), waiting_(tape.layers().size()) {
    for (Transfer& transfer : transfers) {
      const OpId reader = first_backward_reader(tape, transfer.value);
      if (const std::optional<std::uint32_t> layer = tape.op(reader).layer) {
        waiting_[*layer].push_back(&transfer);
      } else {
        transfer.prefetch_with = reader;
      }
    }
  }

  void assign() {
    std::optional<std::uint32_t> previous;
    for (OpId id = tape_.forward_ops(); id < tape_.ops().size(); ++id) {
      const Op& op = tape_.op(id);
      if (op.phase == Phase::kBackward && op.layer && op.layer != previous) {
        previous = op.layer;
        fetch(*op.layer, id);  // fetches maps that the op reads and that no window has reached
        fetch_ahead(*op.layer, id);
      }
    }
  }

 private:
  bool fetch(std::uint32_t layer, OpId with) {
    for (Transfer* transfer : waiting_[layer]) {
      transfer->prefetch_with = with;
    }
    const bool found = !waiting_[layer].empty();
    waiting_[layer].clear();
    return found;
  }

  void fetch_ahead(std::uint32_t layer, OpId with) {
    while (layer-- > 0) {
      if (fetch(layer, with) || tape_.layers()[layer].convolution) {
        return;
      }
    }
  }

  const Tape& tape_;
  std::vector<std::vector<Transfer*>> waiting_;  // by layer: the offloaded maps that are not fetched yet
};

std::vector<Transfer> plan_transfers(const Tape& tape, Policy policy) {
  std::vector<Transfer> transfers;
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    if (is_offloaded(tape, id, policy)) {
      const OpId last = last_forward_use(tape, id);
      transfers.push_back({.value = id, .offload_with = last, .release_with = last, .prefetch_with = kNone});
    }
  }
  std::ranges::stable_sort(transfers, {}, &Transfer::offload_with);
  PrefetchWindow(tape, transfers).assign();
  return transfers;
}

}  // namespace

Plan make_plan(const Tape& tape, const PlanOptions& options) {
  if (options.policy == Policy::kDynamic || options.policy == Policy::kOptimal) {
    throw InvalidArgument("policy " + to_string(options.policy) +
                          " is not static: it needs budgets and forecasts (plan_search.h, optimal_plan.h)");
  }
  Plan plan;
  plan.options = options;
  plan.network_wide = options.policy == Policy::kBaseline;
  for (const Op& op : tape.ops()) {
    plan.algorithms.push_back(choose_algorithm(tape, op, options));
  }
  require_recorded_ops(tape, options);
  plan.transfers = plan_transfers(tape, options.policy);
  return plan;
}

PlanOptions with_kept_algorithms(const Tape& tape, PlanOptions options) {
  if (options.keep_algorithms && options.recorded.empty()) {
    PlanOptions none = options;
    none.policy = Policy::kOffloadNone;
    options.recorded = algorithm_names(tape, make_plan(tape, none).algorithms);
  }
  return options;
}

std::map<std::string, std::string> algorithm_names(const Tape& tape,
                                                   std::span<const std::uint32_t> algorithms) {
  std::map<std::string, std::string> names;
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    if (tape.op(id).recorded()) {
      names.emplace(tape.op(id).name, tape.op(id).algorithms[algorithms[id]].name);
    }
  }
  return names;
}

std::uint64_t workspace_bytes(const Tape& tape, const Plan& plan) {
  std::uint64_t largest = 0;
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    largest = std::max(largest, tape.op(id).algorithms[plan.algorithms[id]].workspace_bytes);
  }
  return largest;
}

namespace {

// Whether the value does not overwrite another value.
bool has_own_memory(const Tape& tape, ValueId id) {
  const OpId producer = tape.producer(id);
  if (producer == kNone) {
    return true;
  }
  const auto& writes = tape.op(producer).writes;
  const auto position = static_cast<std::uint32_t>(std::ranges::find(writes, id) - writes.begin());
  return !overwritten_read(tape, producer, position);
}

}  // namespace

std::uint64_t paper_baseline_bytes(const Tape& tape, const Plan& plan) {
  std::uint64_t maps = 0;
  std::uint64_t largest_gradient = 0;
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    const Value& value = tape.value(id);
    if (value.kind == ValueKind::kGradientMap) {
      largest_gradient = std::max(largest_gradient, value.bytes);
    } else if ((value.kind == ValueKind::kFeatureMap || value.kind == ValueKind::kInput) &&
               has_own_memory(tape, id)) {
      maps = checked_add(maps, value.bytes);
    }
  }
  const std::uint64_t gradients = checked_multiply(2, largest_gradient);
  return checked_add(checked_add(maps, tape.weight_bytes()),
                     checked_add(gradients, workspace_bytes(tape, plan)));
}

}  // namespace vdnn
