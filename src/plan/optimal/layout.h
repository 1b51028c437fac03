#pragma once
// Analytical model of one step: given the planner's decisions and the memory for all that is not persistent,
// chooses the algorithms, when the memory of offloaded values is released, and when they are prefetched, and
// computes how long the step takes. The search evaluates this model thousands of times; the real executor
// then predicts the plans that win.
//
// The model. Ops follow each other on the compute stream. Each uses the fastest algorithm that the decisions
// permit and whose workspace fits in the memory left at its slot (and at every slot where it is recomputed).
// An offload starts when its value is made, one after the other; the copy on the host serves every later gap
// of the value. What has been copied lingers until its memory is needed, and the compute stream waits only if
// the copy is not done by then. A prefetch starts as late as the link permits without delaying an op; later
// where there is no memory for it, never out of the order of need: ops that a slot recomputes come before its
// own. Memory is bytes that fit anywhere: placement.h comes within a few thousandths of that.

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/segment_tree.h"
#include "vdnn/plan.h"

namespace vdnn::optimal {

struct Shortage {
  OpId slot = 0;
  std::uint64_t bytes = 0;
};

struct Outcome {
  // Where the memory does not suffice, by slot. Then nothing else is said.
  std::vector<Shortage> shortages;
  // A value that cannot be made again as things are.
  std::uint32_t impossible_gap = kNone;

  double seconds = 0;            // from step to step; infinite: longer than was asked for
  std::uint64_t host_bytes = 0;  // offloaded

  bool feasible() const { return shortages.empty() && impossible_gap == kNone; }
};

class Layout {
 public:
  explicit Layout(const Problem& problem);

  // `bytes`: for what is not persistent.
  // `slack`: this fraction of the memory is used only where the least that an op needs takes it, so that
  // addresses are easier to find.
  // `longest`: a step that takes longer is of no use, and not looked at to its end.
  Outcome evaluate(const Decisions& decisions, std::uint64_t bytes, double slack = 0,
                   double longest = std::numeric_limits<double>::infinity());

  // Of what was evaluated last, which was feasible: algorithms, transfers and recomputations.
  void write(Plan& plan) const;

  // Of what was evaluated last, which was feasible: the slot from which on there is room for the next step's
  // inputs; where there is none, Problem::load_slot(), for the places of inputs may be free all the same.
  OpId next_load() const { return next_load_; }

  // Of what was evaluated last, which was feasible: the slots at which more memory might make the step
  // shorter, since an algorithm stepped down there, a copy held up an op, or a prefetch had to start late.
  const std::vector<bool>& tight() const { return tight_; }
  // Of those, the ones at which a copy, not the choice of an algorithm, lacked memory.
  const std::vector<OpId>& held_up() const { return held_up_; }
  // `decisions`: those that were evaluated last, and were short of memory. Frees some at each slot that
  // recomputes, with what was freed at the slots before it. A value that is recomputed before its own next
  // use is recomputed again for that use. If there is none, a random one of the recomputed values is
  // offloaded. False: none of the slots recomputes.
  bool relieve(const std::vector<Shortage>& shortages, Decisions& decisions, std::minstd_rand& random) const;
  // What an op runs with: an index into Problem::choices().
  std::uint32_t choice(OpId op) const { return choice_[op]; }

 private:
  // Launched again at `slot`, before its op.
  struct Again {
    OpId slot = 0;
    OpId op = 0;
    // Of what is recomputed at the slot, besides the workspace: less than 0 where it is yet to be made.
    std::int64_t passing_bytes = 0;
  };

  // To the host, of the value of `gap` and for all its later gaps.
  struct Copy {
    OpId slot = 0;  // the op beside which it starts
    std::uint32_t gap = 0;
    bool at_start = false;  // of the op; else when it is done
  };

  bool find_recomputations();
  bool recompute_at(OpId slot, std::uint32_t gap);
  bool gather(OpId slot, std::uint32_t gap);
  bool is_there(ValueId value, OpId slot);
  void count_passing(OpId slot, std::size_t first);
  std::vector<std::uint32_t> recomputed_at(OpId slot) const;
  bool stays(ValueId value, OpId slot) const;
  void find_copies();
  void find_memory();
  bool choose_algorithms();
  bool find_room();
  // In use when it is launched, but for its workspace.
  std::uint64_t bytes_before(const Again& again) const {
    return needed_[again.slot] - problem_.made_bytes(again.slot) +
           static_cast<std::uint64_t>(again.passing_bytes);
  }
  Fate fate(std::uint32_t gap) const { return decisions_->fates[gap]; }
  const Choice& chosen(OpId op) const { return problem_.choices(op)[choice_[op]]; }
  void start_offloads(OpId slot, double clock, std::size_t& next_copy, double& link_free);
  void note_tight(OpId slot, bool held_up);
  void find_seconds();
  bool takes_too_long(double clock) const;
  bool run_without_prefetches();
  void place_prefetches();
  void run();
  void make_room_for_next_inputs();
  double copy_beside(double begin, double seconds, double seconds_both_ways, double other_until) const;

  const Problem& problem_;
  const Decisions* decisions_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t soft_bytes_ = 0;  // less the slack
  double longest_ = 0;
  Outcome outcome_;

  std::vector<Again> again_;                   // by slot, then op
  std::vector<OpId> back_;                     // a gap: the slot at which its value must be there
  std::vector<bool> read_again_;               // a gap: for what is recomputed there, before the slot's op
  std::vector<std::uint32_t> by_first_after_;  // gaps
  std::vector<std::uint32_t> by_last_before_;  // gaps
  std::vector<std::uint32_t> by_back_;         // offloaded gaps
  std::vector<Copy> copies_;                   // to the host, in the order in which they start
  std::vector<std::uint32_t> offloaded_;       // gaps, in order of `last_before`
  double load_seconds_ = 0;                    // that a step waits for its inputs
  OpId next_load_ = 0;                         // the slot from which on there is room for the next step's
  double all_seconds_ = 0;                     // of computing
  std::vector<std::uint64_t> needed_;          // a slot: bytes, at last with workspace and what lingers
  std::vector<std::uint64_t> room_;            // a slot
  std::vector<std::uint32_t> choice_;          // an op: into Problem::choices()
  std::vector<double> seconds_;                // a slot: computing
  std::vector<double> start_;                  // a slot
  std::vector<double> copied_;                 // a gap: when its value is on the host
  std::vector<OpId> release_;                  // a gap
  std::vector<bool> forced_;                   // a gap: its memory is needed at once
  std::vector<OpId> prefetch_;                 // a gap
  std::vector<double> arrival_;                // a gap
  std::vector<bool> tight_;                    // a slot
  std::vector<OpId> held_up_;
  SegmentTree tree_;

  std::vector<std::uint32_t> visited_;  // an op: by which search
  std::uint32_t search_ = 0;
  std::vector<ValueId> stack_;
  std::vector<OpId> last_reader_;  // a value: among what is made again
  std::vector<std::int64_t> scratch_;
};

}  // namespace vdnn::optimal
