#pragma once
// Page-locked memory of a stash. A block that is given back is kept for later requests, with the event of its
// last copy. Page-locking is slow and stalls devices, so a step that repeats another does none of it.
//
// It is the PinnedPool's idea for streams that are not a Device's, and for programs whose sizes change from
// step to step:
//
//  * Sizes. A block has one of sixteen sizes from each power of two to the next (host_block_size.h). A
//    request gets the smallest kept block that it fits into. It must use at least a quarter of the block, or
//    four fifths once more than half of the budget is locked: reusing locked memory beats locking more, as
//    long as there is enough.
//  * Plans. provide() locks the blocks that a planned step lacks, between two steps. In a step that repeats
//    another, a request gives no kept block back to make room for its own. Otherwise two requests could take
//    turns with that and lock pages in each step. So if the budget is too small for a step, the same tensors
//    stay each time.
//  * Outdated sizes. end_step() keeps the blocks that the ended step used or that expected steps need. It
//    keeps others only within twice the needs of the largest recent step, so that the sizes of earlier steps
//    do not add up. The smallest others go first, since a larger block can serve in the place of a smaller.
//
// The host waits for the last copies of blocks that go back to the system. At the end of a step, these are
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
  StashEvent last_use;      // none: the block has not been used
  std::uint64_t given = 0;  // a count that grows with each return
};

// Not synchronised.
class HostBlocks {
 public:
  // A block in use, or nothing: a list of one node, which moves between lists without an allocation.
  using Lease = std::list<HostBlock>;
  // How a request gets memory if no kept block serves it. kLeft: it locks memory that the budget has left.
  // kMade: it may also give kept blocks back to make room.
  enum class Room : std::uint8_t { kLeft, kMade };
  enum class Fit : std::uint8_t { kOwnSize, kAny };

  HostBlocks(StashBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend), budget_bytes_(budget_bytes) {}
  // Waits for copies in flight and frees all blocks that are not leased.
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // A block of at least `bytes` (> 0), whose user must wait for its last use. Empty if budget or system have
  // no memory for it.
  Lease take(std::uint64_t bytes, Room room);
  // Makes blocks until each of the needs has one, in use or kept, as far as the budget allows. Gives other
  // blocks back to make room.
  void provide(const HostBlockCounts& needs, Fit fit);
  // Ends a step whose kind needs `ended`. `expected`: the needs of kinds that will be met again.
  void end_step(const HostBlockCounts& ended, std::span<const HostBlockCounts* const> expected);
  // `last_use`: the last copy that uses the block; none: no copy since take().
  void give(Lease lease, StashEvent last_use) noexcept;
  // Gives back a block that a copy without an event may use: waits for all copies or, if that fails, keeps
  // the block until the end.
  void give_unordered(Lease lease) noexcept;

  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t page_locks() const { return page_locks_; }

 private:
  // All blocks of one size.
  struct Size {
    Lease kept;              // in the order in which they were given back
    std::size_t blocks = 0;  // kept or in use
  };
  using Sizes = std::map<std::uint64_t, Size>;
  // The blocks that meet needs, and the needs that no block meets.
  struct Match {
    HostBlockCounts used;
    HostBlockCounts unmet;
  };

  Lease take_kept(std::uint64_t size, std::uint64_t largest);
  std::uint64_t largest_for(std::uint64_t size) const;
  Match match(const HostBlockCounts& needs, Fit fit) const;
  // Gives kept blocks back until there is room for `size`, and keeps at least `needed` of each size. False:
  // that makes no room, and no block was given back.
  bool make_room_for(std::uint64_t size, const HostBlockCounts& needed);
  Lease make(std::uint64_t size);
  // Frees the oldest kept block beyond `needed`. Returns whether there was one.
  bool free_oldest(const HostBlockCounts& needed);
  // Likewise, frees the smallest that the ended step did not use.
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
  Sizes sizes_;  // all blocks by size
  Lease stranded_;
};

}  // namespace vdnn::stash
