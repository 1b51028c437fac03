#pragma once
// A tape as the policy `optimal` looks at it. Time is counted in *slots*, the positions of the ops of the
// tape; at each slot so many bytes are resident. A *gap* is a stretch of slots between two consecutive uses
// of a value that the forward pass makes. The *main* gap of a value leads from its last use in the forward
// pass to its first in the backward pass; a value may have others on either side of it. The planner decides
// the fate of the value in each gap by itself, so a value may leave and come back several times in a step.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "vdnn/optimal_plan.h"
#include "vdnn/plan.h"
#include "vdnn/plan_costs.h"
#include "vdnn/tape.h"

namespace vdnn::optimal {

// kRecompute: the value comes back at the first op that needs it, be it to recompute another value, and
// stays. kRemake: it is recomputed for each of those ops alone, and stays from its own next use on.
enum class Fate : std::uint8_t { kKeep, kOffload, kRecompute, kRemake };
constexpr bool is_recomputed(Fate fate) {
  return fate == Fate::kRecompute || fate == Fate::kRemake;
}
using Fates = std::vector<Fate>;  // a gap

// One way to compute an op.
struct Choice {
  std::uint32_t algorithm = 0;
  double seconds = 0;
  std::uint64_t workspace_bytes = 0;
};

// What the planner decides.
struct Decisions {
  Fates fates;
  // An op: index into Problem::choices(); its algorithm is no faster than that one.
  std::vector<std::uint8_t> least_choice;
};

struct Gap {
  ValueId value = kNone;
  OpId made = 0;         // the op beside which it can be offloaded: its producer, or an input's first reader
  OpId last_before = 0;  // the last use before the gap
  OpId first_after = 0;  // the first use after it
  bool main = false;
  std::uint64_t freed_bytes = 0;  // of memory, in the gap
  std::uint64_t bytes = 0;        // of memory that it takes when it is back
  double offload_seconds = 0;
  double prefetch_seconds = 0;
  bool may_recompute = false;
  // At some point of the forward pass it is all that the rest of it needs, but for inputs.
  bool cut = false;
  double recompute_seconds = 0;  // with what it is made from resident, as far as it lives that long
};

// A step may launch an op again, to recompute a value. The second launch reads and makes this.
struct Relaunch {
  bool possible = false;
  std::vector<ValueId> reads;  // those that are not persistent
  struct Made {
    ValueId value = kNone;
    ValueId overwrites = kNone;  // the read whose place it takes
  };
  std::vector<Made> makes;
};

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

class Problem {
 public:
  // `options`: a workspace limit and recorded algorithms are obeyed. `limit`, in bytes: of the ways to
  // compute an op, those before first_within() are left out.
  Problem(const Tape& tape, const PlanOptions& options, const PlanCosts& costs,
          std::uint64_t limit = kNoLimit);

  const Tape& tape() const { return tape_; }
  const PlanCosts& costs() const { return costs_; }
  std::size_t slots() const { return resident_.size(); }
  // The ways that pay: fastest first, each with less workspace than those before.
  const std::vector<Choice>& choices(OpId op) const { return choices_[op]; }
  double fastest(OpId op) const { return choices_[op].front().seconds; }
  std::uint64_t least_workspace(OpId op) const { return choices_[op].back().workspace_bytes; }

  // The last way that an op uses of free will: those after it take several times as long as the first, and
  // are for where nothing else fits.
  std::uint32_t last_choice(OpId op) const { return last_choice_[op]; }
  bool is_last_resort(OpId op, std::uint32_t algorithm) const;
  // Seconds that the first way takes less, where that is one; else 0.
  double lost_to_last_resort(OpId op, std::uint32_t algorithm) const;
  // Of all launches.
  double lost_to_last_resorts(const PlannedSchedule& known) const;
  // The first way whose workspace has at most `limit` bytes; the last where all have more. An index like
  // `choice`.
  std::uint32_t first_within(OpId op, std::uint64_t limit) const;
  // The next way with a quarter less workspace or more, as far as the last choice; an index like `choice`.
  std::uint32_t next_smaller(OpId op, std::uint32_t choice) const;

  // Memory in a slot with every value kept, without workspace; and how much of it the slot's op asks for.
  const std::vector<std::uint64_t>& resident_bytes() const { return resident_; }
  // That keeping every value takes with the fastest algorithms.
  std::uint64_t most_bytes() const;
  // That the plans of the search need at least.
  std::uint64_t least_bytes() const;
  std::uint64_t made_bytes(OpId slot) const { return made_[slot]; }
  // Parameters and the optimizer's state.
  std::uint64_t persistent_bytes() const { return persistent_bytes_; }
  std::uint64_t parameter_bytes() const { return parameter_bytes_; }  // the same, without alignment
  std::uint64_t aligned(std::uint64_t bytes) const;
  // Of the memory that it lies in, which is larger than the value where that overwrites a larger one.
  std::int64_t storage_bytes(ValueId value) const { return static_cast<std::int64_t>(storage_[value]); }
  const Relaunch& relaunch(OpId op) const { return relaunches_[op]; }

  // In order of `made`; those of one value are neighbours, in order of time.
  const std::vector<Gap>& gaps() const { return gaps_; }
  // The positions of a value's gaps in gaps(): from the first up to, but not with, the second.
  std::pair<std::uint32_t, std::uint32_t> gaps_of(ValueId value) const { return gaps_of_[value]; }
  // The value's gap that the slot lies in, or that ends with it; kNone: none.
  std::uint32_t gap_at(ValueId value, OpId slot) const;
  // The one between the passes; kNone: none.
  std::uint32_t main_gap(ValueId value) const;
  double load_seconds() const { return load_seconds_; }  // of a step's inputs
  // The slot from which on the rest of a step takes at least as long as that.
  OpId load_slot() const { return load_slot_; }

 private:
  void find_choices(const PlanOptions& options, std::uint64_t limit);
  void find_residents();
  void find_relaunches();
  void find_gaps();
  void add_gaps(ValueId value);
  void find_cuts();
  std::optional<double> chain_seconds(ValueId value, OpId at) const;

  const Tape& tape_;
  const PlanCosts& costs_;
  std::vector<std::vector<Choice>> choices_;
  std::vector<std::uint32_t> last_choice_;  // an op
  std::vector<std::uint64_t> resident_;
  std::vector<std::uint64_t> made_;
  std::vector<std::uint64_t> storage_;  // a value: of the memory that it lies in
  std::vector<Relaunch> relaunches_;    // an op
  std::uint64_t persistent_bytes_ = 0;
  std::uint64_t parameter_bytes_ = 0;
  std::vector<Gap> gaps_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gaps_of_;  // a value
  double load_seconds_ = 0;
  OpId load_slot_ = 0;
};

}  // namespace vdnn::optimal
