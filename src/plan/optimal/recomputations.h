#pragma once
// Finds the ops that are launched again, and the slots before which this happens, for given fates of values.
// src/plan/recomputation.h describes the reads, results and releases of a second launch. An operand on the
// host is fetched in time for it.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/recomputation.h"

namespace vdnn::optimal {

// A second launch of `op`, before the op of `slot`.
struct LaunchedAgain {
  OpId slot = 0;
  OpId op = 0;
  // Bytes of the values recomputed at the slot that exist while the op runs, less the bytes of those that
  // stay. The latter count as resident from the slot on, so the difference is negative until they are made.
  std::int64_t passing_bytes = 0;
};

struct Recomputations {
  std::vector<LaunchedAgain> launches;  // by slot
  // By gap: the slot from which on the value is on the device again; kNone if it is kept.
  std::vector<OpId> back;
  std::vector<bool> read_early;  // by gap: a recomputation at that slot reads the value, before the slot's op
  // A gap whose value cannot be made again; then the rest is incomplete. kNone if all can.
  std::uint32_t impossible_gap = kNone;
};

// Keeps its memory from call to call. Belongs to one thread; the problem outlives it.
class RecomputationFinder {
 public:
  explicit RecomputationFinder(const Problem& problem);

  // Valid until the next call.
  const Recomputations& find(const Fates& fates);

 private:
  bool recompute_at(OpId slot, std::uint32_t gap);
  void note_back(ValueId value, OpId slot);
  bool is_there(ValueId value, OpId slot);
  bool stays(ValueId value, OpId slot) const;
  void count_passing(OpId slot);

  const Problem& problem_;
  std::vector<std::uint32_t> by_first_after_;  // gaps
  const Fates* fates_ = nullptr;               // those of the current call
  RelaunchSearch search_;
  Recomputations found_;
};

}  // namespace vdnn::optimal
