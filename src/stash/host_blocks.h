#pragma once
// Page-locked memory of a stash. A block that is given back is kept for later requests, with the event of its
// last copy. Page-locking is slow and stalls devices, so a step that repeats another does none of it.
//
// It is the PinnedPool's idea for streams that are not a Device's, and for programs whose sizes change from
// step to step:
//
//  * Sizes. A block has one of sixteen sizes from each power of two to the next (host_block_size.h). A
//  request
//    gets the smallest kept block that it fits into. Of the block at least a quarter is used, or four fifths
//    once more than half of the budget is locked: memory that is locked already serves better than memory
//    that has to be locked, as long as there is enough.
//  * Plans. provide() makes what a planned step lacks, between two steps. A request of a step that repeats
//    another gives no kept block back to make room for its own: two requests would take turns with that, and
//    lock in each step. So where the budget is too small for a step, the same tensors stay each time.
//  * Sizes that are gone. end_step() leaves what the steps need that are expected again and what the ended
//    step used, and more only within twice the needs of the largest step of late, so that the sizes of
//    earlier steps do not add up. Of the others the smallest go first: a larger one serves in the place of a
//    smaller.
//
// The host waits for the last copies of blocks that go back to the system. At the end of a step those are
// copies of an earlier step.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>

#include "src/stash/host_block_size.h"
#include "src/stash/stash_event.h"
#include "vdnn/stash_backend.h"

namespace vdnn::stash {

struct HostBlock {
  AddressRange range;
  StashEvent last_use;      // none: it has not been used
  std::uint64_t given = 0;  // when: counts upwards
};

// Not synchronised.
class HostBlocks {
 public:
  // A block in use, or nothing: a list of one node, which moves between lists without asking for memory.
  using Lease = std::list<HostBlock>;
  // Where no kept block serves a request, it may lock memory that the budget has left, or also give kept
  // blocks back for it.
  enum class Room : std::uint8_t { kLeft, kMade };
  enum class Fit : std::uint8_t { kOwnSize, kAny };

  HostBlocks(StashBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend), budget_bytes_(budget_bytes) {}
  // Waits for copies in flight and frees all but what is leased.
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // At least `bytes` (> 0). Its user waits for its last use. Empty where neither budget nor system
  // have them.
  Lease take(std::uint64_t bytes, Room room);
  // Afterwards each of the needs has a block, in use or kept, as far as the budget goes. Others are given
  // back for it.
  void provide(const HostBlockCounts& needs, Fit fit);
  // Of a step whose kind has these needs. `expected`: those of kinds that will be met again.
  void end_step(const HostBlockCounts& ended, std::span<const HostBlockCounts* const> expected);
  // `last_use`: the last copy that uses the block; none: nothing but what was so at its taking.
  void give(Lease lease, StashEvent last_use) noexcept;
  // A copy may use it of which there is no event: waits for all copies, or, where that fails, until the end.
  void give_unordered(Lease lease) noexcept;

  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t page_locks() const { return page_locks_; }

 private:
  // All blocks of one size.
  struct Size {
    Lease kept;              // the one that was given back first is first
    std::size_t blocks = 0;  // kept or in use
  };
  using Sizes = std::map<std::uint64_t, Size>;
  // Blocks by which needs are met, and needs for which there is none.
  struct Match {
    HostBlockCounts used;
    HostBlockCounts unmet;
  };

  Lease take_kept(std::uint64_t size, std::uint64_t largest);
  std::uint64_t largest_for(std::uint64_t size) const;
  Match match(const HostBlockCounts& needs, Fit fit) const;
  // Gives kept blocks back until there is room for `size`, at least `needed` of each size remaining. False:
  // there is none, and none was given back.
  bool make_room_for(std::uint64_t size, const HostBlockCounts& needed);
  Lease make(std::uint64_t size);
  // Beyond `needed`. Whether there was one.
  bool free_oldest(const HostBlockCounts& needed);
  // Likewise, of those that the ended step did not use.
  bool free_smallest_unused(const HostBlockCounts& needed);
  bool free_one_of(Sizes::iterator size);
  bool is_spare(const Sizes::value_type& size, const HostBlockCounts& needed) const;

  StashBackend& backend_;
  const std::uint64_t budget_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t page_locks_ = 0;
  std::uint64_t gifts_ = 0;
  std::uint64_t gifts_before_step_ = 0;
  std::uint64_t recent_needs_bytes_ = 0;
  Sizes sizes_;  // of all blocks that there are
  Lease stranded_;
};

}  // namespace vdnn::stash
