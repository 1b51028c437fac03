#pragma once
// A tape as the policy `optimal` looks at it. Time is counted in *slots*, the positions of the ops of the
// tape; at each slot so many bytes are resident. A *gap* is a stretch of slots in which a value is not used:
// from its last use in the forward pass to its first in the backward pass. What is decided is the fate of the
// value of each gap.

#include <cstdint>
#include <optional>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/plan_costs.h"
#include "vdnn/tape.h"

namespace vdnn::optimal {

enum class Fate : std::uint8_t { kKeep, kOffload, kRecompute };
using Fates = std::vector<Fate>;  // a gap

// One way to compute an op.
struct Choice {
  std::uint32_t algorithm = 0;
  double seconds = 0;
  std::uint64_t workspace_bytes = 0;
};

struct Gap {
  ValueId value = kNone;
  OpId made = 0;         // the op beside which it can be offloaded: its producer, or an input's first reader
  OpId last_before = 0;  // the last use before the gap
  OpId first_after = 0;  // the first behind it
  std::uint64_t freed_bytes = 0;  // of memory, in the gap
  std::uint64_t bytes = 0;        // of memory that it takes when it is back
  double offload_seconds = 0;
  double prefetch_seconds = 0;
  bool may_recompute = false;
  // At some point of the forward pass it is all that the rest of it needs, but for inputs.
  bool cut = false;
  double recompute_seconds = 0;  // with what it is made from resident, as far as it lives that long
};

class Problem {
 public:
  // `options`: a workspace limit and recorded algorithms are obeyed.
  Problem(const Tape& tape, const PlanOptions& options, const PlanCosts& costs);

  const Tape& tape() const { return tape_; }
  const PlanCosts& costs() const { return costs_; }
  std::size_t slots() const { return resident_.size(); }
  // The ways that pay: fastest first, each with less workspace than those before.
  const std::vector<Choice>& choices(OpId op) const { return choices_[op]; }
  double fastest(OpId op) const { return choices_[op].front().seconds; }
  std::uint64_t least_workspace(OpId op) const { return choices_[op].back().workspace_bytes; }

  // Memory in a slot with every value kept, without workspace; and how much of it the slot's op asks for.
  const std::vector<std::uint64_t>& resident_bytes() const { return resident_; }
  // That keeping every value takes with the fastest algorithms.
  std::uint64_t most_bytes() const;
  std::uint64_t made_bytes(OpId slot) const { return made_[slot]; }
  // Parameters and the optimizer's state.
  std::uint64_t persistent_bytes() const { return persistent_bytes_; }
  std::uint64_t parameter_bytes() const { return parameter_bytes_; }  // the same, without alignment
  std::uint64_t aligned(std::uint64_t bytes) const;

  const std::vector<Gap>& gaps() const { return gaps_; }                // in order of `made`
  std::uint32_t gap_of(ValueId value) const { return gap_of_[value]; }  // kNone: none
  double load_seconds() const { return load_seconds_; }                 // of a step's inputs
  // The slot from which on the rest of a step takes at least as long as that.
  OpId load_slot() const { return load_slot_; }

 private:
  void find_choices(const PlanOptions& options);
  void find_residents();
  void find_gaps();
  void find_cuts();
  std::optional<double> chain_seconds(ValueId value, OpId at) const;

  const Tape& tape_;
  const PlanCosts& costs_;
  std::vector<std::vector<Choice>> choices_;
  std::vector<std::uint64_t> resident_;
  std::vector<std::uint64_t> made_;
  std::vector<std::uint64_t> storage_;  // a value: of the memory that it lies in
  std::uint64_t persistent_bytes_ = 0;
  std::uint64_t parameter_bytes_ = 0;
  std::vector<Gap> gaps_;
  std::vector<std::uint32_t> gap_of_;
  double load_seconds_ = 0;
  OpId load_slot_ = 0;
};

}  // namespace vdnn::optimal
