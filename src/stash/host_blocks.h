#pragma once
// Page-locked memory of a stash: exact sizes; a block that is given back is kept for the next request of that
// size, with the event of its last copy. Page-locking is slow and stalls devices, so a step that repeats
// another does none of it.
//
// It is the PinnedPool's idea for streams that are not a Device's. Where the budget does not allow a new
// block, kept blocks of other sizes go back to the system, the one that was given back first of all first;
// the host waits for their last copies.

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

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

  HostBlocks(StashBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend), budget_bytes_(budget_bytes) {}
  // Waits for copies in flight and frees all but what is leased.
  ~HostBlocks();
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  // Whoever uses it waits for its last use. Empty where neither budget nor system have `bytes`.
  Lease take(std::uint64_t bytes);
  // Afterwards there are at least `count` blocks of `bytes`, in use or kept, as far as the budget goes.
  void reserve(std::uint64_t bytes, std::size_t count);
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
    Lease kept;              // the oldest is first
    std::size_t blocks = 0;  // kept or in use
  };

  bool has_room_for(std::uint64_t bytes);
  Lease make(std::uint64_t bytes);
  // Whether there was a block to be freed.
  bool free_oldest();

  StashBackend& backend_;
  const std::uint64_t budget_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t page_locks_ = 0;
  std::uint64_t gifts_ = 0;
  std::unordered_map<std::uint64_t, Size> sizes_;  // of all blocks that there are
  Lease stranded_;
};

}  // namespace vdnn::stash
