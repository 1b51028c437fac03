#pragma once
// A tape as the policy `optimal` sees it. Time is counted in *slots*, the positions of the ops of the tape.
// At each slot a number of bytes is resident. A *gap* is a stretch of slots between two consecutive uses of a
// value that the forward pass makes. The *main* gap of a value is between its last use in the forward pass
// and its first use in the backward pass. A value may have other gaps before and after its main gap. The
// planner decides the value's fate in each gap separately, so a value may leave and come back several times
// in a step.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/plan/recomputation.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/plan.h"
#include "vdnn/plan_costs.h"
#include "vdnn/tape.h"

namespace vdnn::optimal {

// The treatment of a value in a gap. kKeep: the value stays on the device. kOffload: a copy on the host
// replaces it. kRecompute: the value is recomputed before the first op that needs it, and then stays. An op
// also needs a value if another value is recomputed from it before the op. kRemake: the value is recomputed
// for each such op and released after the op. It stays only from its own next use on.
enum class Fate : std::uint8_t { kKeep, kOffload, kRecompute, kRemake };
constexpr bool is_recomputed(Fate fate) {
  return fate == Fate::kRecompute || fate == Fate::kRemake;
}
using Fates = std::vector<Fate>;  // the fate in each gap

// One way to compute an op.
struct Choice {
  std::uint32_t algorithm = 0;
  double seconds = 0;
  std::uint64_t workspace_bytes = 0;
};

// The planner's decisions.
struct Decisions {
  Fates fates;
  // By op: the index of the first of Problem::choices() that the op may use.
  std::vector<std::uint8_t> least_choice;
};

struct Gap {
  ValueId value = kNone;
  OpId made = 0;  // the op at which an offload can start: the value's producer, or an input's first reader
  OpId last_before = 0;  // the last use before the gap
  OpId first_after = 0;  // the first use after the gap
  bool main = false;
  std::uint64_t freed_bytes = 0;  // memory that the gap frees
  std::uint64_t bytes = 0;        // memory that the value needs once it is back
  double offload_seconds = 0;
  double prefetch_seconds = 0;
  bool may_recompute = false;
  // Whether there is a point in the forward pass after which the pass needs no earlier values but this one
  // and inputs.
  bool cut = false;
  double recompute_seconds = 0;  // if every value with a use at `first_after` or later is on the device
};

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

class Problem {
 public:
  // Applies the workspace limit and the recorded algorithms of `options`. `limit`: another workspace limit,
  // in bytes; an op's choices before first_within(limit) are left out.
  Problem(const Tape& tape, const PlanOptions& options, const PlanCosts& costs,
          std::uint64_t limit = kNoLimit);

  const Tape& tape() const { return tape_; }
  const PlanCosts& costs() const { return costs_; }
  std::size_t slots() const { return resident_.size(); }
  // The useful ways to compute an op, from the fastest to the slowest. Each choice has less workspace than
  // the previous one.
  const std::vector<Choice>& choices(OpId op) const { return choices_[op]; }
  double fastest(OpId op) const { return choices_[op].front().seconds; }
  std::uint64_t least_workspace(OpId op) const { return choices_[op].back().workspace_bytes; }

  // The last choice that is not of the last resort. The choices after it take several times as long as the
  // first choice, and are used only if no faster choice fits.
  std::uint32_t last_choice(OpId op) const { return last_choice_[op]; }
  bool is_last_resort(OpId op, std::uint32_t algorithm) const;
  // If the algorithm is of the last resort, the seconds by which the first choice is faster; otherwise 0.
  double lost_to_last_resort(OpId op, std::uint32_t algorithm) const;
  // The sum of lost_to_last_resort() over all launches of a plan.
  double lost_to_last_resorts(const PlannedSchedule& known) const;
  // The first choice whose workspace has at most `limit` bytes, or the last choice if all have more. An index
  // into choices().
  std::uint32_t first_within(OpId op, std::uint64_t limit) const;
  // The next choice after `choice` that has at least a quarter less workspace, but not beyond last_choice().
  // `choice` and the result are indices into choices().
  std::uint32_t next_smaller(OpId op, std::uint32_t choice) const;

  // By slot: the bytes in use, without workspaces, if every value is kept.
  const std::vector<std::uint64_t>& resident_bytes() const { return resident_; }
  // The bytes for keeping every value and using the fastest algorithms.
  std::uint64_t most_bytes() const;
  // The least bytes that any plan of the search needs.
  std::uint64_t least_bytes() const;
  // The part of resident_bytes() that the slot's op allocates.
  std::uint64_t made_bytes(OpId slot) const { return made_[slot]; }
  // The bytes of parameters and of the optimizer's state, each aligned.
  std::uint64_t persistent_bytes() const { return persistent_bytes_; }
  std::uint64_t parameter_bytes() const { return parameter_bytes_; }  // without alignment
  // The bytes that are left for everything else in `device_bytes`, which count in whole granules.
  std::uint64_t room_beside_persistent(std::uint64_t device_bytes) const;
  std::uint64_t aligned(std::uint64_t bytes) const;
  // The bytes of the value's memory. They are more than its size if the value overwrites a larger one.
  std::int64_t storage_bytes(ValueId value) const { return static_cast<std::int64_t>(storage_[value]); }
  const Relaunch& relaunch(OpId op) const { return relaunches_[op]; }
  const std::vector<Relaunch>& relaunches() const { return relaunches_; }

  // All gaps in order of `made`. The gaps of one value are consecutive, in order of time.
  const std::vector<Gap>& gaps() const { return gaps_; }
  // Positions in gaps(), in the order of the member `slot` of the gaps.
  std::vector<std::uint32_t> gaps_by(OpId Gap::*slot) const;
  // The positions of a value's gaps in gaps(): from the first up to, but not including, the second.
  std::pair<std::uint32_t, std::uint32_t> gaps_of(ValueId value) const { return gaps_of_[value]; }
  // The value's gap that contains the slot or ends with it; kNone if there is none.
  std::uint32_t gap_at(ValueId value, OpId slot) const {
    const auto [begin, end] = gaps_of_[value];
    for (std::uint32_t gap = begin; gap < end; ++gap) {
      if (slot <= ends_[gap].first_after) {
        return slot > ends_[gap].last_before ? gap : kNone;
      }
    }
    return kNone;
  }
  // The same as gaps()[gap].first_after, read from less memory.
  OpId first_after(std::uint32_t gap) const { return ends_[gap].first_after; }
  // The value's main gap; kNone if it has none.
  std::uint32_t main_gap(ValueId value) const;
  // The seconds to copy a step's inputs to the device.
  double load_seconds() const { return load_seconds_; }
  // With the fastest algorithms: the last slot from whose start the rest of the step takes at least
  // load_seconds(), or 0 if the whole step takes less.
  OpId load_slot() const { return load_slot_; }

 private:
  struct Ends {
    OpId last_before = 0;
    OpId first_after = 0;
  };

  void find_choices(const PlanOptions& options, std::uint64_t limit);
  void find_residents();
  void find_gaps();
  void add_gaps(ValueId value);
  void find_cuts();
  std::optional<double> chain_seconds(ValueId value, OpId at) const;

  const Tape& tape_;
  const PlanCosts& costs_;
  std::vector<std::vector<Choice>> choices_;
  std::vector<std::uint32_t> last_choice_;  // by op
  std::vector<std::uint64_t> resident_;
  std::vector<std::uint64_t> made_;
  std::vector<std::uint64_t> storage_;  // by value
  std::vector<Relaunch> relaunches_;    // by op
  std::uint64_t persistent_bytes_ = 0;
  std::uint64_t parameter_bytes_ = 0;
  std::vector<Gap> gaps_;
  std::vector<Ends> ends_;  // of gaps_, a copy in less memory, since the search reads them most often
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gaps_of_;  // by value
  double load_seconds_ = 0;
  OpId load_slot_ = 0;
};

}  // namespace vdnn::optimal
