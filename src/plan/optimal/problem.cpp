#include "src/plan/optimal/problem.h"

#include <algorithm>
#include <numeric>

#include "src/plan/overwrite.h"
#include "vdnn/size.h"

namespace vdnn::optimal {

namespace {

// A value is recomputed only if at most this many ops must run again for it.
constexpr std::size_t kLongestChain = 64;
// Values smaller than 1 / kSmallest of all feature maps are kept: a transfer costs launches and frees almost
// no memory.
constexpr std::uint64_t kSmallest = 20000;
// An algorithm that takes more than this many times as long as the op's fastest is an algorithm of the last
// resort.
constexpr double kMuchSlower = 3;

bool is_much_slower(double seconds, double fastest) {
  return seconds > kMuchSlower * fastest;
}

}  // namespace

Problem::Problem(const Tape& tape, const PlanOptions& options, const PlanCosts& costs, std::uint64_t limit)
    : tape_(tape), costs_(costs), relaunches_(relaunches_of(tape)), gaps_of_(tape.values().size(), {0, 0}) {
  find_choices(options, limit);
  find_residents();
  find_gaps();
  for (const ValueId input : tape.inputs()) {
    load_seconds_ += costs.copy_seconds + static_cast<double>(tape.value(input).bytes) / costs.host_to_device;
  }
  load_slot_ = static_cast<OpId>(slots());
  for (double rest = 0; load_slot_ > 0 && rest < load_seconds_;) {
    rest += fastest(--load_slot_);
  }
}

std::uint64_t Problem::aligned(std::uint64_t bytes) const {
  return round_up(bytes, costs_.alignment_bytes);
}

std::uint64_t Problem::room_beside_persistent(std::uint64_t device_bytes) const {
  const std::uint64_t whole = device_bytes / costs_.granule_bytes * costs_.granule_bytes;
  return whole - std::min(whole, persistent_bytes_);
}

std::uint64_t Problem::most_bytes() const {
  std::uint64_t most = 0;
  for (OpId slot = 0; slot < slots(); ++slot) {
    most = std::max(most, resident_[slot] + choices_[slot].front().workspace_bytes);
  }
  return most;
}

std::uint64_t Problem::least_bytes() const {
  std::vector<std::int64_t> freed(slots() + 1, 0);
  for (const Gap& gap : gaps_) {
    freed[gap.last_before + 1] += static_cast<std::int64_t>(gap.freed_bytes);
    freed[gap.first_after] -= static_cast<std::int64_t>(gap.freed_bytes);
  }
  std::uint64_t least = 0;
  std::int64_t gone = 0;
  for (OpId slot = 0; slot < slots(); ++slot) {
    gone += freed[slot];
    least = std::max(least, resident_[slot] - static_cast<std::uint64_t>(gone) + least_workspace(slot));
  }
  return least;
}

bool Problem::is_last_resort(OpId op, std::uint32_t algorithm) const {
  return is_much_slower(costs_.op_seconds[op][algorithm], fastest(op));
}

double Problem::lost_to_last_resort(OpId op, std::uint32_t algorithm) const {
  return is_last_resort(op, algorithm) ? costs_.op_seconds[op][algorithm] - fastest(op) : 0;
}

double Problem::lost_to_last_resorts(const PlannedSchedule& known) const {
  double seconds = 0;
  for (const Instruction& instruction : known.schedule.instructions) {
    const OpId op = instruction.op;
    seconds += is_launch(instruction.kind) ? lost_to_last_resort(op, known.plan.algorithms[op]) : 0;
  }
  return seconds;
}

std::uint32_t Problem::next_smaller(OpId op, std::uint32_t choice) const {
  const std::vector<Choice>& all = choices_[op];
  const std::uint32_t last = last_choice(op);
  const std::uint64_t most = all[choice].workspace_bytes / 4 * 3;
  while (choice < last && all[++choice].workspace_bytes > most) {
  }
  return choice;
}

void Problem::find_choices(const PlanOptions& options, std::uint64_t limit) {
  // The choice of a static policy shows which algorithms the limit and the recorded algorithms permit.
  const Plan least = make_plan(tape_, {.policy = Policy::kOffloadNone,
                                       .preference = AlgorithmPreference::kMemory,
                                       .workspace_limit = options.workspace_limit,
                                       .recorded = options.recorded});
  for (OpId id = 0; id < tape_.ops().size(); ++id) {
    const std::vector<Algorithm>& algorithms = tape_.op(id).algorithms;
    std::vector<Choice> all;
    for (std::uint32_t index = 0; index < algorithms.size(); ++index) {
      const bool permitted =
          options.recorded.empty()
              ? !options.workspace_limit || algorithms[index].workspace_bytes <= *options.workspace_limit
              : index == least.algorithms[id];
      if (permitted) {
        all.push_back({.algorithm = index,
                       .seconds = costs_.op_seconds[id][index],
                       .workspace_bytes = aligned(algorithms[index].workspace_bytes)});
      }
    }
    std::ranges::stable_sort(all, [](const Choice& a, const Choice& b) {
      return std::pair(a.seconds, a.workspace_bytes) < std::pair(b.seconds, b.workspace_bytes);
    });
    std::vector<Choice>& kept = choices_.emplace_back();
    for (const Choice& choice : all) {
      if (kept.empty() || choice.workspace_bytes < kept.back().workspace_bytes) {
        kept.push_back(choice);
      }
    }
    kept.erase(kept.begin(), kept.begin() + first_within(id, limit));
    const auto much_slower = [&kept](const Choice& choice) {
      return is_much_slower(choice.seconds, kept.front().seconds);
    };
    const auto last = std::ranges::find_if(kept, much_slower) - kept.begin() - 1;
    last_choice_.push_back(static_cast<std::uint32_t>(last));
  }
}

std::uint32_t Problem::first_within(OpId op, std::uint64_t limit) const {
  const std::vector<Choice>& all = choices_[op];
  const auto obeys = [limit](const Choice& choice) { return choice.workspace_bytes <= limit; };
  return static_cast<std::uint32_t>(std::find_if(all.begin(), all.end() - 1, obeys) - all.begin());
}

// A value that overwrites another one uses the other value's memory, which may be larger than its own size.
void Problem::find_residents() {
  const std::size_t slots = tape_.ops().size();
  std::vector<std::int64_t> change(slots + 1, 0);
  made_.assign(slots, 0);
  storage_.assign(tape_.values().size(), 0);
  const auto live = [&](std::uint64_t bytes, OpId first, OpId last) {
    change[first] += static_cast<std::int64_t>(bytes);
    change[last + 1] -= static_cast<std::int64_t>(bytes);
  };
  for (ValueId id = 0; id < tape_.values().size(); ++id) {
    const Value& value = tape_.value(id);
    storage_[id] = aligned(value.bytes);
    if (value.persistent() && tape_.last_use(id) == kNone) {
      continue;  // no schedule has a buffer for the value
    }
    if (value.persistent()) {
      persistent_bytes_ += storage_[id];
      parameter_bytes_ += value.bytes;
    } else if (value.loaded() && tape_.last_use(id) != kNone) {
      live(storage_[id], 0, tape_.last_use(id));
    }
  }
  for (OpId id = 0; id < slots; ++id) {
    const Op& op = tape_.op(id);
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const ValueId value = op.writes[write];
      if (tape_.value(value).persistent()) {
        continue;
      }
      if (const auto read = overwritten_read(tape_, id, write)) {
        storage_[value] = storage_[op.reads[*read]];
        if (tape_.last_use(value) > id) {
          live(storage_[value], id + 1, tape_.last_use(value));
        }
      } else {
        made_[id] += storage_[value];
        live(storage_[value], id, tape_.last_use(value));
      }
    }
  }
  std::int64_t bytes = 0;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    bytes += change[slot];
    resident_.push_back(static_cast<std::uint64_t>(bytes));
  }
}

void Problem::find_gaps() {
  const std::uint64_t smallest = tape_.feature_map_bytes() / kSmallest;
  for (ValueId id = 0; id < tape_.values().size(); ++id) {
    const Value& value = tape_.value(id);
    const bool forward_value = value.kind == ValueKind::kInput || value.kind == ValueKind::kFeatureMap ||
                               value.kind == ValueKind::kSaved;
    if (forward_value && value.bytes >= smallest) {
      add_gaps(id);
    }
  }
  std::ranges::stable_sort(gaps_, {}, &Gap::made);
  for (std::uint32_t gap = 0; gap < gaps_.size(); ++gap) {
    auto& [begin, end] = gaps_of_[gaps_[gap].value];
    begin = end == 0 ? gap : begin;
    end = gap + 1;
    ends_.push_back({.last_before = gaps_[gap].last_before, .first_after = gaps_[gap].first_after});
  }
  find_cuts();
}

void Problem::add_gaps(ValueId id) {
  const auto readers = tape_.readers(id);
  const OpId producer = tape_.producer(id);
  if (readers.empty()) {
    return;
  }
  const OpId made = producer == kNone ? readers.front() : producer;
  const auto bytes = static_cast<double>(tape_.value(id).bytes);
  OpId before = made;
  for (const OpId after : readers) {
    if (after >= before + 2) {
      const std::optional<double> chain = chain_seconds(id, after);
      gaps_.push_back(
          {.value = id,
           .made = made,
           .last_before = before,
           .first_after = after,
           .main = tape_.op(before).phase == Phase::kForward && tape_.op(after).phase != Phase::kForward,
           .freed_bytes = storage_[id],
           .bytes = aligned(tape_.value(id).bytes),
           .offload_seconds = costs_.copy_seconds + bytes / costs_.device_to_host,
           .prefetch_seconds = costs_.copy_seconds + bytes / costs_.host_to_device,
           .may_recompute = chain.has_value(),
           .recompute_seconds = chain.value_or(0)});
    }
    before = after;
  }
}

std::vector<std::uint32_t> Problem::gaps_by(OpId Gap::*slot) const {
  std::vector<std::uint32_t> order(gaps_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t gap) { return gaps_[gap].*slot; });
  return order;
}

std::uint32_t Problem::main_gap(ValueId value) const {
  const auto [begin, end] = gaps_of_[value];
  for (std::uint32_t gap = begin; gap < end; ++gap) {
    if (gaps_[gap].main) {
      return gap;
    }
  }
  return kNone;
}

void Problem::find_cuts() {
  const OpId end = tape_.forward_ops();
  // After each op: the number of values that have been made and that the forward pass still reads, and the
  // sum of their ids. If there is only one such value, the sum is its id.
  std::vector<std::int64_t> count(end + 1, 0);
  std::vector<std::int64_t> sum(end + 1, 0);
  for (ValueId id = 0; id < tape_.values().size(); ++id) {
    const OpId producer = tape_.producer(id);
    if (tape_.value(id).persistent() || producer == kNone || producer >= end) {
      continue;
    }
    OpId last = producer;
    for (const OpId reader : tape_.readers(id)) {
      last = reader < end ? std::max(last, reader) : last;
    }
    count[producer] += 1;
    count[last] -= 1;
    sum[producer] += id;
    sum[last] -= id;
  }
  std::int64_t alive = 0;
  std::int64_t which = 0;
  for (OpId op = 0; op < end; ++op) {
    alive += count[op];
    which += sum[op];
    if (alive != 1) {
      continue;
    }
    if (const std::uint32_t gap = main_gap(static_cast<ValueId>(which)); gap != kNone) {
      gaps_[gap].cut = true;
    }
  }
}

// The seconds to make the value again at slot `at`, if every value with a use at `at` or later is on the
// device. Returns nothing if the chain is too long or one of its ops cannot run again.
std::optional<double> Problem::chain_seconds(ValueId value, OpId at) const {
  double seconds = 0;
  std::vector<OpId> chain;
  std::vector<ValueId> missing{value};
  while (!missing.empty()) {
    const OpId producer = tape_.producer(missing.back());
    missing.pop_back();
    if (producer == kNone || !relaunches_[producer].possible) {
      return std::nullopt;
    }
    if (std::ranges::find(chain, producer) != chain.end()) {
      continue;
    }
    chain.push_back(producer);
    if (chain.size() > kLongestChain) {
      return std::nullopt;
    }
    seconds += fastest(producer);
    for (const ValueId read : relaunches_[producer].reads) {
      if (tape_.last_use(read) < at) {
        missing.push_back(read);
      }
    }
  }
  return seconds;
}

}  // namespace vdnn::optimal
