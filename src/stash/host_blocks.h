#pragma once
// Page-locked memory of a stash. A returned block is kept for later requests, with the event of its last
// copy. Page-locking is slow and stalls devices, so a step that repeats another locks no page.
//
// The PinnedPool does the same for streams of a Device. This class serves streams that are not a Device's,
// and programs whose sizes change from step to step:
//
//  * Sizes. A block has one of sixteen sizes from each power of two to the next (host_block_size.h). A
//    request gets the smallest kept block that it fits into. The request must use at least a quarter of the
//    block, since reusing locked memory costs less than locking more. Once more than half of the budget is
//    locked, it must use four fifths, unless no more memory can be locked.
//  * Plans. provide() locks the blocks that a planned step lacks, between two steps. In a step that repeats
//    another, a request does not free kept blocks to make room. Otherwise two requests could free each
//    other's blocks in turn, and lock pages in each step. So if the budget is too small for a step, the same
//    tensors stay in each repetition.
//  * Outdated sizes. end_step() keeps the blocks that the ended step used or that expected steps need. It
//    keeps other blocks only up to a total of twice the needs of the largest recent step, so that the sizes
//    of earlier steps do not add up. It frees the smallest others first, since a larger block can replace a
//    smaller one.
//
// Before a block goes back to the system, the host waits for its last copy. At the end of a step, that is a
// copy of an earlier step.

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
  std::uint64_t given = 0;  // serial number of its last return
};

// Not synchronised.
class HostBlocks {
 public:
  // A block in use, or nothing: a list of one node, which moves between lists without an allocation.
  using Lease = std::list<HostBlock>;
  // How a request gets memory if no kept block serves it. kLeft: it locks pages within the remaining budget.
  // kMade: it may also free kept blocks to make room.
  enum class Room : std::uint8_t { kLeft, kMade };
  enum class Fit : std::uint8_t { kOwnSize, kAny };

  HostBlocks(StashBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend), budget_bytes_(budget_bytes) {}
  // Waits for copies in flight and frees all blocks that are not leased.
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // Returns a block of at least `bytes` (> 0); the user must wait for the block's last use. Empty if the
  // budget or the system has no memory left for it.
  Lease take(std::uint64_t bytes, Room room);
  // Locks blocks until each need has one, in use or kept, as far as the budget allows. Frees other blocks to
  // make room.
  void provide(const HostBlockCounts& needs, Fit fit);
  // Ends a step whose kind needs `ended`. `expected`: the needs of kinds that are likely to come again.
  void end_step(const HostBlockCounts& ended, std::span<const HostBlockCounts* const> expected);
  // Returns a block. `last_use`: the last copy that uses it; none if no copy has used it since take().
  void give(Lease lease, StashEvent last_use) noexcept;
  // Returns a block that a copy without an event may use: waits for all copies or, if that fails, keeps the
  // block until the end.
  void give_unordered(Lease lease) noexcept;

  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t page_locks() const { return page_locks_; }

 private:
  // All blocks of one size.
  struct Size {
    Lease kept;              // in the order of their return
    std::size_t blocks = 0;  // kept or in use
  };
  using Sizes = std::map<std::uint64_t, Size>;
  // Blocks that meet needs, and unmet needs; by size.
  struct Match {
    HostBlockCounts used;
    HostBlockCounts unmet;
  };

  Lease take_kept(std::uint64_t size, std::uint64_t largest);
  std::uint64_t largest_for(std::uint64_t size) const;
  Match match(const HostBlockCounts& needs, Fit fit) const;
  // Frees kept blocks until there is room for `size`, but leaves `needed` blocks of each size. If that cannot
  // make enough room, frees none and returns false.
  bool make_room_for(std::uint64_t size, const HostBlockCounts& needed);
  Lease make(std::uint64_t size);
  // Frees the oldest kept block beyond `needed`. Returns whether there was one.
  bool free_oldest(const HostBlockCounts& needed);
  // Frees the smallest kept block beyond `needed` that the ended step did not use. Returns whether there was
  // one.
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
