#pragma once
// For given fates of values, finds the ops that are launched again, and the slots before which they are.
// src/plan/recomputation.h describes the reads, results and releases of a second launch. If an operand of a
// second launch is on the host, it is fetched in time.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/recomputation.h"

namespace vdnn::optimal {

// A second launch of `op`, before the op of `slot`.
struct LaunchedAgain {
  OpId slot = 0;
  OpId op = 0;
  // Of the values recomputed at the slot, the bytes of those that exist while the op runs, minus the bytes of
  // all staying values (recomputation.h) of the slot. Staying values count as resident at the slot, so the
  // difference is negative until they are made.
  std::int64_t passing_bytes = 0;
};

struct Recomputations {
  std::vector<LaunchedAgain> launches;  // in order of slots
  // By gap: the slot from which on the value is on the device again; kNone if the value is kept in the gap.
  std::vector<OpId> back;
  // By gap: whether a recomputation at slot `back` reads the value, before the slot's op.
  std::vector<bool> read_early;
  // A gap whose value cannot be made again; kNone if there is none. If there is one, the other members are
  // incomplete.
  std::uint32_t impossible_gap = kNone;
};

// Keeps its storage from call to call. Use it from one thread. The problem must outlive it.
class RecomputationFinder {
 public:
  explicit RecomputationFinder(const Problem& problem);

  // The result is valid until the next call.
  const Recomputations& find(const Fates& fates);

 private:
  bool recompute_at(OpId slot, std::uint32_t gap);
  void note_back(ValueId value, OpId slot);
  bool is_there(ValueId value, OpId slot);
  bool stays(ValueId value, OpId slot) const;
  void count_passing(OpId slot);

  const Problem& problem_;
  std::vector<std::uint32_t> by_first_after_;  // gaps
  std::vector<OpId> last_use_;                 // by value, a copy, since the search reads it most often
  const Fates* fates_ = nullptr;               // the fates of the current call
  RelaunchSearch search_;
  Recomputations found_;
};

}  // namespace vdnn::optimal
