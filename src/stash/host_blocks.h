#pragma once
// Page-locked memory of a stash. A returned block is kept for later requests, with the event of its last
// copy. Page-locking is slow and stalls devices, so a step that repeats another locks no page.
//
// PinnedPool also keeps page-locked memory, but for streams of a Device. This class is for other streams, and
// for programs whose sizes change from step to step:
//
//  * Sizes. A block has one of sixteen sizes from each power of two to the next (host_block_size.h). A
//    request gets the smallest kept block that it fits into. The request must use at least a quarter of the
//    block, since reusing locked memory costs less than locking more. Once more than half of the budget is
//    locked, it must use at least four fifths of the block, unless no more memory can be locked.
//  * Plans. provide() locks the blocks that a planned step lacks, between two steps. In a step that repeats
//    another, a request does not free kept blocks to make room. Otherwise two requests could free each
//    other's blocks in turn, and lock pages in each step. So if the budget is too small for a step, the same
//    tensors stay on the device in each repetition.
//  * Outdated sizes. end_step() keeps the blocks that the ended step used or that expected steps need. It
//    frees other blocks until all blocks together have at most twice the bytes that the largest recent step
//    needed, so that the sizes of earlier steps do not add up. It frees the smallest blocks first, since a
//    larger block can replace a smaller one.
//
// Before a block is freed, the host waits for the block's last copy. end_step() frees only blocks whose last
// copy belongs to an earlier step.

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
  StashEvent last_use;      // empty if the block has not been used
  std::uint64_t given = 0;  // serial number of its last return
};

// Not synchronised.
class HostBlocks {
 public:
  // A block in use, or nothing: a list of one node, which moves between lists without an allocation.
  using Lease = std::list<HostBlock>;
  // Where take() finds memory if no kept block fits the request. kLeft: it locks pages within the remaining
  // budget. kMade: it also frees kept blocks if the remaining budget is too small.
  enum class Room : std::uint8_t { kLeft, kMade };
  enum class Fit : std::uint8_t { kOwnSize, kAny };

  HostBlocks(StashBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend), budget_bytes_(budget_bytes) {}
  // Waits for copies in flight and frees all blocks that are not leased.
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // Returns a block of at least `bytes` (> 0). Wait for the block's last use before you use it. Returns an
  // empty lease if the budget or the system has no memory left for the block.
  Lease take(std::uint64_t bytes, Room room);
  // Locks blocks until each need has one, in use or kept, as far as the budget allows. Frees other blocks to
  // make room.
  void provide(const HostBlockCounts& needs, Fit fit);
  // Ends a step whose kind needs `ended`. `expected`: the needs of kinds that are likely to be repeated.
  void end_step(const HostBlockCounts& ended, std::span<const HostBlockCounts* const> expected);
  // Returns a block. `last_use`: the last copy that uses it; none if no copy has used it since take().
  void give(Lease lease, StashEvent last_use) noexcept;
  // Returns a block that may still be in use by a copy for which there is no event. Waits for all copies; if
  // that fails, the block is not reused and is freed at the end.
  void give_unordered(Lease lease) noexcept;

  // Whether the system refused to page-lock memory in the latest take(), although the budget allowed it.
  bool is_refused_by_system() const { return is_refused_by_system_; }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t page_locks() const { return page_locks_; }

 private:
  // All blocks of one size.
  struct Size {
    Lease kept;              // the blocks in the order of their return
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
  // Frees kept blocks until the budget has `size` bytes left, but leaves `needed` blocks of each size. If
  // that cannot free enough, frees none and returns false.
  bool make_room_for(std::uint64_t size, const HostBlockCounts& needed);
  Lease make(std::uint64_t size);
  // Frees the oldest kept block that `needed` does not count. Returns whether there was one.
  bool free_oldest(const HostBlockCounts& needed);
  // Frees the smallest kept block that `needed` does not count and that the ended step did not use. Returns
  // whether there was one.
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
  bool is_refused_by_system_ = false;
  Sizes sizes_;  // all blocks by size
  Lease stranded_;
};

}  // namespace vdnn::stash
