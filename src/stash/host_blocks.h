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
//  * Refusals. If the system refuses to page-lock memory within the budget, requests and plans stay below the
//    refused total, as if the budget were less. Only a request that may free kept blocks asks the system for
//    more before it frees any. retry_refused() asks for the refused total again, but ever more rarely: if the
//    system's limit is permanent, n calls ask about log2(n) times and lock nothing. Once the system permits
//    more, the budget alone applies again.
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
  // Where take() finds memory if no kept block fits the request. kLeft: it locks pages within what is left of
  // limit_bytes(). kMade: it locks pages within the remaining budget. If that is too small, or the system
  // refuses, it frees kept blocks.
  enum class Room : std::uint8_t { kLeft, kMade };
  enum class Fit : std::uint8_t { kOwnSize, kAny };

  HostBlocks(StashBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend), budget_bytes_(budget_bytes), limit_bytes_(budget_bytes) {}
  // Waits for copies in flight and frees all blocks that are not leased.
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // Returns a block of at least `bytes` (> 0). Wait for the block's last use before you use it. Returns an
  // empty lease if the budget or the system has no memory left for the block.
  Lease take(std::uint64_t bytes, Room room);
  // Locks blocks until each need has one, in use or kept, as far as the budget and the system allow. Frees
  // other blocks to make room, but none that meets a need.
  void provide(const HostBlockCounts& needs, Fit fit);
  // Call it after a step in which a tensor got no block. May ask the system again for the total that it
  // refused; a block that it locks is kept.
  void retry_refused();
  // Ends a step whose kind needs `ended`. `expected`: the needs of kinds that are likely to be repeated.
  void end_step(const HostBlockCounts& ended, std::span<const HostBlockCounts* const> expected);
  // Returns a block. `last_use`: the last copy that uses it; none if no copy has used it since take().
  void give(Lease lease, StashEvent last_use) noexcept;
  // Returns a block that may still be in use by a copy for which there is no event. Waits for all copies; if
  // that fails, the block is not reused and is freed at the end.
  void give_unordered(Lease lease) noexcept;

  // Whether the latest take() returned no block because of the system's refusal, although the budget allowed
  // one. The system may have refused earlier.
  bool is_refused_by_system() const { return is_refused_by_system_; }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  // The most bytes that may be locked as far as is known: the budget, or less if the system refused more.
  std::uint64_t limit_bytes() const { return limit_bytes_; }
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
  // Locks a block, and frees kept blocks until the limit and the system allow it, but leaves `needed` blocks
  // of each size. Returns an empty lease if that cannot free enough.
  Lease make_in_room(std::uint64_t size, const HostBlockCounts& needed);
  // Frees kept blocks until the limit has `size` bytes left, but leaves `needed` blocks of each size. If
  // that cannot free enough, frees none and returns false.
  bool make_room_for(std::uint64_t size, const HostBlockCounts& needed);
  // The bytes of the kept blocks that `needed` does not count.
  std::uint64_t spare_bytes(const HostBlockCounts& needed) const;
  // Whether `size` bytes more are within `limit` once `freed` bytes are freed.
  bool fits(std::uint64_t size, std::uint64_t limit, std::uint64_t freed = 0) const {
    return size <= limit && bytes_ - freed <= limit - size;
  }
  // Locks a block, even beyond the limit. If the system refuses, lowers the limit below the refused total and
  // returns an empty lease. If it permits more than the limit, the budget becomes the limit again.
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
  std::uint64_t limit_bytes_;         // at least bytes_
  std::uint64_t calls_at_limit_ = 0;  // of retry_refused()
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
