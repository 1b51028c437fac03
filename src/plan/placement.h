#pragma once
// Addresses before the run. The schedule says when each buffer lives, so that the question that an allocator
// answers without knowing what comes, dynamic storage allocation, can be asked with all lifetimes known: find
// offsets so that no two buffers that are alive at once overlap, in as few bytes as possible. That is
// NP-hard (Garey and Johnson 1979, SR2); what is alive at the fullest moment is a lower bound, and first fit
// in a good order comes near it: those that live longest first, which for the feature maps of a chain is a
// stack without a hole, or the largest first, or those first that are alive at the fullest moment. Where none
// of them does, the buffers are handed out in order of time, what lives long from one end, what does not from
// the other. At last small buffers get a part of their own, at most a few thousandths of the whole: they are
// most of all buffers, and wherever one lies no large one can. For the large ones the orders are improved for
// a while by moving to the front what came to lie too high. Where first fit takes too long for all the pairs
// of buffers that meet, all are placed in order of time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn {

// A buffer while it lives: from the instruction that allocates it up to, but not with, the one that releases
// it. It may live longer than it must: what has been copied to the host may stay until its place is needed,
// and what is fetched may come early. Where there is room for it the longer life is granted.
struct Lifetime {
  BufferId buffer = kNone;
  std::uint64_t bytes = 0;
  std::uint32_t begin = 0;  // must live
  std::uint32_t end = 0;
  std::uint32_t soft_begin = 0;  // may live; not after `begin`
  std::uint32_t soft_end = 0;    // not before `end`
  // From there on its place would better be left to it already, for the next step; not before `soft_end`.
  // kNone: no matter.
  std::uint32_t next_begin = kNone;

  bool operator==(const Lifetime&) const = default;
};

// Of all buffers of the device that are not persistent, in order of allocation; none is longer than it is.
std::vector<Lifetime> lifetimes(const Schedule& schedule);

// The most bytes that are alive at once, each buffer rounded up to `alignment`.
std::uint64_t most_live_bytes(std::span<const Lifetime> lifetimes, std::uint64_t alignment);

// An offset for each, a multiple of `alignment`, and how many bytes they reach over. No better one is looked
// for than one that takes no more than `goal`; longer lives are granted inside the goal only. Deterministic.
struct Placement {
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;
};
Placement find_placement(std::span<const Lifetime> lifetimes, std::uint64_t alignment, std::uint64_t goal);

// Remembers what find_placement() has found last. Belongs to one thread.
class Placements {
 public:
  // Until the next call.
  const Placement& find(std::span<const Lifetime> lifetimes, std::uint64_t alignment, std::uint64_t goal);

 private:
  struct Known {
    std::vector<Lifetime> lifetimes;
    std::uint64_t alignment = 0;
    std::uint64_t goal = 0;
    Placement placement;
  };
  static constexpr std::size_t kMostKnown = 64;

  std::deque<Known> known_;
};

// Shortens the soft lives of those whose places others take: afterwards all of them hold.
void settle(std::vector<Lifetime>& lifetimes, const Placement& placement, std::uint64_t alignment);

// Places those in the order of offsets that were right for lifetimes no shorter: takes no more bytes. Too
// many for first fit stay where they are.
Placement pack(std::span<const Lifetime> lifetimes, std::span<const std::uint64_t> offsets,
               std::uint64_t alignment);

void assign(Schedule& schedule, std::span<const Lifetime> lifetimes, const Placement& placement);

// Gives each buffer its offset, and the schedule its arena. Before waits are derived: they depend on it.
void place_buffers(Schedule& schedule, std::uint64_t alignment, std::uint64_t goal);

}  // namespace vdnn
