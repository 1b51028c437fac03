#pragma once
// One step reckoned with: given the fate of each gap's value and how much memory there is for all that is not
// persistent, chooses the algorithms, when the memory of what is offloaded is given back, and when it is
// fetched, and says how long the step will be. This is what the search asks thousands of times; the plans
// that win are predicted by the real executor before one is believed.
//
// The model. Ops follow each other on the compute stream; each takes the fastest algorithm whose workspace
// fits in what is left at its slot (and, where it is launched again, there). Offloads start when their value
// is made, one behind the other; what has been copied lingers until its memory is needed, and only if the
// copy is not done by then the compute stream waits. Prefetches start as late as they can without anybody
// waiting for them, judged by the link, one behind the other; later where there is no memory for them, never
// out of the order of need. Memory is bytes that fit anywhere: placement.h comes within a few thousandths.

#include <cstdint>
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

  double seconds = 0;            // from step to step
  std::uint64_t host_bytes = 0;  // offloaded

  bool feasible() const { return shortages.empty() && impossible_gap == kNone; }
};

class Layout {
 public:
  explicit Layout(const Problem& problem);

  // `bytes`: for what is not persistent.
  Outcome evaluate(const Fates& fates, std::uint64_t bytes);

  // Of what was evaluated last, which was feasible: algorithms, transfers and recomputations.
  void write(Plan& plan) const;

 private:
  // Launched again at `slot`, before its op.
  struct Again {
    OpId slot = 0;
    OpId op = 0;
    std::uint64_t passing_bytes = 0;  // that live for others of the slot, besides the workspace
  };

  bool find_recomputations(const Fates& fates);
  bool recompute_at(OpId slot, std::uint32_t gap);
  bool gather(OpId slot, std::uint32_t gap);
  bool is_there(ValueId value, OpId slot);
  void count_passing(OpId slot, std::size_t first);
  void find_memory(const Fates& fates);
  bool choose_algorithms();
  bool find_room();
  // In use when it is launched, but for its workspace.
  std::uint64_t bytes_before(const Again& again) const {
    return needed_[again.slot] - problem_.made_bytes(again.slot) + again.passing_bytes;
  }
  const Choice& chosen(OpId op) const { return problem_.choices(op)[choice_[op]]; }
  void start_offloads(OpId slot, double clock, std::size_t& next_made, double& link_free);
  void run_without_prefetches();
  void place_prefetches();
  void run();
  void make_room_for_next_inputs();
  double copy_beside(double begin, double seconds, double seconds_both_ways, double other_until) const;

  const Problem& problem_;
  const Fates* fates_ = nullptr;
  std::uint64_t bytes_ = 0;
  Outcome outcome_;

  std::vector<Again> again_;                   // by slot, then op
  std::vector<OpId> back_;                     // a gap: the slot at which its value must be there
  std::vector<std::uint32_t> by_first_after_;  // gaps
  std::vector<std::uint32_t> by_back_;         // offloaded gaps
  double load_seconds_ = 0;                    // that a step waits for its inputs
  std::vector<std::uint64_t> needed_;          // a slot: bytes, at last with workspace and what lingers
  std::vector<std::uint64_t> room_;            // a slot
  std::vector<std::uint32_t> choice_;          // an op: into Problem::choices()
  std::vector<double> seconds_;                // a slot: computing
  std::vector<double> start_;                  // a slot
  std::vector<double> copied_;                 // a gap: when it is on the host
  std::vector<OpId> release_;                  // a gap
  std::vector<bool> forced_;                   // a gap: its memory is needed at once
  std::vector<OpId> prefetch_;                 // a gap
  std::vector<double> arrival_;                // a gap
  SegmentTree tree_;

  std::vector<std::uint32_t> visited_;  // an op: by which search
  std::uint32_t search_ = 0;
  std::vector<ValueId> stack_;
  std::vector<OpId> last_reader_;  // a value: among what is made again
  std::vector<std::int64_t> scratch_;
};

}  // namespace vdnn::optimal
