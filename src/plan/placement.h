#pragma once
// Plans addresses before the run. An allocator must place buffers without knowing the future; here the
// schedule tells all lifetimes. The task is to find offsets such that no two buffers that are alive at once
// overlap, in as few bytes as possible. The problem is NP-hard (Garey and Johnson 1979, SR2). The bytes that
// are alive at the fullest moment are a lower bound.
//
// First fit in a good order comes near the bound. Three orders are tried. In the first, buffers with the
// longest lives come first: for the feature maps of a chain, this leads to a stack without a hole. In the
// second, the largest buffers come first. In the third, the buffers closest to the fullest moment come first.
// If no order comes near enough to the bound, buffers are placed in order of time, unless a place is firm.
// Then buffers with long lives are placed from one end of memory, and buffers with short lives from the other
// end.
//
// If that does not suffice either, small buffers are placed in a separate part, at most a few thousandths of
// the whole. Then they leave no holes among large buffers, although most buffers are small. The three orders
// are then improved step by step: buffers that are placed too high move towards the front.
//
// If too many pairs of buffers are alive at once for first fit, all buffers are placed in order of time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn {

// The life of a buffer: from the instruction that allocates it up to, but not including, the instruction that
// releases it. A buffer may live longer than necessary; the longer life is its *soft* life. For example, a
// buffer that was copied to the host may stay until its place is needed. Or the buffer of a prefetch may be
// allocated early. A placement grants the soft life if memory permits.
struct Lifetime {
  BufferId buffer = kNone;
  std::uint64_t bytes = 0;
  std::uint32_t begin = 0;  // of the life that the buffer must have
  std::uint32_t end = 0;
  std::uint32_t soft_begin = 0;  // of the soft life; not after `begin`
  std::uint32_t soft_end = 0;    // not before `end`
  // From this instruction to the end of the step, the place should stay free for the next step's buffer. Must
  // be at least `soft_end`, or kNone if the place need not stay free.
  std::uint32_t next_begin = kNone;
  // Whether the place stays free even if the arena then exceeds the goal. Other buffers' soft lives may still
  // extend into that time. Placement in order of time ignores this (see places_in_order_of_time()).
  bool next_is_firm = false;

  bool operator==(const Lifetime&) const = default;
};

// The lifetimes of all device buffers that are not persistent, in order of allocation. Their soft lives are
// no longer than necessary.
std::vector<Lifetime> lifetimes(const Schedule& schedule);

// The most bytes that are alive at once, each buffer rounded up to `alignment`.
std::uint64_t most_live_bytes(std::span<const Lifetime> lifetimes, std::uint64_t alignment);

// An offset for each lifetime, and the bytes of the arena.
struct Placement {
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;
};

// Whether there are too many buffers, or pairs of buffers that are alive at once, for first fit.
// find_placement() then places all buffers in order of time.
bool places_in_order_of_time(std::span<const Lifetime> lifetimes);

// Finds offsets that are multiples of `alignment`. The search ends once `goal` bytes suffice, and grants soft
// lives only within the goal. It is deterministic.
Placement find_placement(std::span<const Lifetime> lifetimes, std::uint64_t alignment, std::uint64_t goal);

// Remembers the latest results of find_placement(). Use it from one thread.
class Placements {
 public:
  // Like find_placement(). The reference is valid until the next call.
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

// Shortens the soft lives of buffers whose places other buffers need. Afterwards the placement grants all
// soft lives.
void settle(std::vector<Lifetime>& lifetimes, const Placement& placement, std::uint64_t alignment);

// Places buffers anew, in the order of `offsets`. The offsets must be valid for lifetimes at least as long as
// `lifetimes`. The result needs no more bytes than a placement with these offsets. If there are too many
// buffers for first fit, they keep their offsets.
Placement pack(std::span<const Lifetime> lifetimes, std::span<const std::uint64_t> offsets,
               std::uint64_t alignment);

// Sets the offset of each buffer, and the size of the schedule's arena.
void assign(Schedule& schedule, std::span<const Lifetime> lifetimes, const Placement& placement);

// Finds a placement and assigns it. Call it before derive_waits(), which depends on offsets.
void place_buffers(Schedule& schedule, std::uint64_t alignment, std::uint64_t goal);

}  // namespace vdnn
