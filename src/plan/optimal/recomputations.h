#pragma once
// Which ops are launched again before which slots, for given fates of values. What a second launch reads,
// makes and gives back is described in src/plan/recomputation.h; an operand that is away on the host is
// fetched in time for it.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/recomputation.h"

namespace vdnn::optimal {

// Before the op of `slot`, `op` is launched again.
struct LaunchedAgain {
  OpId slot = 0;
  OpId op = 0;
  // Of all values that are recomputed at the slot, those that exist while the op runs, less those that stay:
  // they count as resident from the slot on, so that this is negative while they are yet to be made.
  std::int64_t passing_bytes = 0;
};

struct Recomputations {
  std::vector<LaunchedAgain> launches;  // by slot
  // By gap: the slot from which on the value is on the device again; kNone: it is kept.
  std::vector<OpId> back;
  std::vector<bool> read_early;  // by gap: a recomputation at that slot reads the value, before the slot's op
  // The value of this gap cannot be made again; kNone: all can. Otherwise the rest is incomplete.
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
  const Fates* fates_ = nullptr;               // of this call
  RelaunchSearch search_;
  Recomputations found_;
};

}  // namespace vdnn::optimal
