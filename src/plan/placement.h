#pragma once
// Addresses that are planned before the run. An allocator solves dynamic storage allocation without knowing
// the future. Here all lifetimes are known from the schedule: find offsets in as few bytes as possible so
// that no two buffers that are alive at once overlap. The problem is NP-hard (Garey and Johnson 1979, SR2).
// The bytes that are alive at the fullest moment are a lower bound.
//
// First fit in a good order comes near the bound. Three orders are tried: longest life first, which for the
// feature maps of a chain is a stack without a hole; largest first; and first those that are alive at the
// fullest moment. If none comes near enough, buffers are placed in order of time, long lives from one end,
// short ones from the other. Then small buffers get a part of their own, at most a few thousandths of the
// whole: most buffers are small, and no large buffer can lie where a small one does. The orders of the large
// ones are improved for a while by moving buffers to the front that came to lie too high.
//
// If there are too many pairs of buffers alive at once for first fit, all are placed in order of time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn {

// The life of a buffer: from the instruction that allocates it up to, but not including, the one that
// releases it. It may live longer than it must: a buffer that was copied to the host may stay until its place
// is needed, and a fetch may come early. The longer life is granted if there is room for it.
struct Lifetime {
  BufferId buffer = kNone;
  std::uint64_t bytes = 0;
  std::uint32_t begin = 0;  // must live
  std::uint32_t end = 0;
  std::uint32_t soft_begin = 0;  // may live; not after `begin`
  std::uint32_t soft_end = 0;    // not before `end`
  // From this instruction on its place had better stay free for the next step's buffer; not before
  // `soft_end`. kNone: no preference.
  std::uint32_t next_begin = kNone;

  bool operator==(const Lifetime&) const = default;
};

// Of all non-persistent buffers on the device, in order of allocation. Soft lives equal the lives.
std::vector<Lifetime> lifetimes(const Schedule& schedule);

// The most bytes that are alive at once, each buffer rounded up to `alignment`.
std::uint64_t most_live_bytes(std::span<const Lifetime> lifetimes, std::uint64_t alignment);

// An offset for each lifetime, a multiple of `alignment`, and the bytes that they extend over. The search
// ends when `goal` bytes suffice; longer lives are granted within the goal only. Deterministic.
struct Placement {
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;
};
Placement find_placement(std::span<const Lifetime> lifetimes, std::uint64_t alignment, std::uint64_t goal);

// Remembers the latest results of find_placement(). Belongs to one thread.
class Placements {
 public:
  // The reference is valid until the next call.
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

// Shortens the soft lives of buffers whose places others take. Afterwards all soft lives can be kept.
void settle(std::vector<Lifetime>& lifetimes, const Placement& placement, std::uint64_t alignment);

// Places buffers in the order of offsets that were right for lifetimes no shorter than these, and needs no
// more bytes than they did. Buffers that are too many for first fit stay where they are.
Placement pack(std::span<const Lifetime> lifetimes, std::span<const std::uint64_t> offsets,
               std::uint64_t alignment);

// Gives each buffer its offset, and the schedule its arena.
void assign(Schedule& schedule, std::span<const Lifetime> lifetimes, const Placement& placement);

// Finds a placement and assigns it. Call it before derive_waits(), which depends on offsets.
void place_buffers(Schedule& schedule, std::uint64_t alignment, std::uint64_t goal);

}  // namespace vdnn
