#pragma once
// Addresses that are planned before the run. An allocator solves dynamic storage allocation without knowing
// the future. Here all lifetimes are known from the schedule: find offsets in as few bytes as possible so
// that no two buffers that are alive at once overlap. The problem is NP-hard (Garey and Johnson 1979, SR2).
// The bytes that are alive at the fullest moment are a lower bound.
//
// First fit in a good order comes near the bound. Three orders are tried: longest life first, which for the
// feature maps of a chain is a stack without a hole; largest first; and closest to the fullest moment first.
// If none comes near enough, buffers are placed in order of time, long lives from one end, short ones from
// the other.
//
// If that does not suffice either, small buffers get a separate part, at most a few thousandths of the whole:
// most buffers are small, and no large buffer can overlap a small one. The orders of the large buffers are
// then improved for a while: buffers that are placed too high move to the front.
//
// If too many pairs of buffers are alive at once for first fit, all are placed in order of time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn {

// The life of a buffer: from the instruction that allocates it up to, but not including, the instruction that
// releases it. A buffer may live longer than necessary: one that was copied to the host may stay until its
// place is needed, and a fetch may come early. The longer life is granted if there is room for it.
struct Lifetime {
  BufferId buffer = kNone;
  std::uint64_t bytes = 0;
  std::uint32_t begin = 0;  // must live
  std::uint32_t end = 0;
  std::uint32_t soft_begin = 0;  // may live; not after `begin`
  std::uint32_t soft_end = 0;    // not before `end`
  // From this instruction on, the place should stay free for the next step's buffer. Not before `soft_end`;
  // kNone if there is no preference.
  std::uint32_t next_begin = kNone;

  bool operator==(const Lifetime&) const = default;
};

// The lifetimes of all non-persistent device buffers, in order of allocation. Soft lives equal the lives.
std::vector<Lifetime> lifetimes(const Schedule& schedule);

// The most bytes that are alive at once, each buffer rounded up to `alignment`.
std::uint64_t most_live_bytes(std::span<const Lifetime> lifetimes, std::uint64_t alignment);

// An offset for each lifetime, a multiple of `alignment`, and the bytes of the arena. The search ends when
// `goal` bytes suffice, and grants longer lives only within the goal. It is deterministic.
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

// Shortens the soft lives of buffers whose places others get. Afterwards all soft lives can be kept.
void settle(std::vector<Lifetime>& lifetimes, const Placement& placement, std::uint64_t alignment);

// Places buffers in the order of `offsets`, which were valid for lifetimes no shorter than these, and needs
// no more bytes. If there are too many buffers for first fit, they keep their offsets.
Placement pack(std::span<const Lifetime> lifetimes, std::span<const std::uint64_t> offsets,
               std::uint64_t alignment);

// Gives each buffer its offset, and the schedule its arena.
void assign(Schedule& schedule, std::span<const Lifetime> lifetimes, const Placement& placement);

// Finds a placement and assigns it. Call it before derive_waits(), which depends on offsets.
void place_buffers(Schedule& schedule, std::uint64_t alignment, std::uint64_t goal);

}  // namespace vdnn
