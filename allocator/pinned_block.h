#pragma once
// A page-locked block for the host's side of a transfer. Its destructor gives the block back to the pool.

#include <cstdint>
#include <string>

#include "vdnn/error.h"
#include "vdnn/pinned_pool.h"

namespace vdnn {

class PinnedBlock {
 public:
  // Allocates `bytes` (> 0) that the host may write immediately. Throws OutOfMemory, with `purpose` in its
  // text, if the pool has no memory for the block.
  PinnedBlock(PinnedPool& pool, std::uint64_t bytes, const std::string& purpose) : pool_(pool) {
    const auto range = pool.allocate_for_host(bytes);
    if (!range) {
      throw OutOfMemory("page-locked memory " + purpose, pool.shortage(bytes));
    }
    range_ = *range;
  }
  ~PinnedBlock() {
    try {
      pool_.free(range_, last_use_);
    } catch (...) {
      // Without memory for a frontier of many streams, the block stays in use until the pool is destroyed.
    }
  }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  const AddressRange& range() const { return range_; }
  // Declares a use of the block by submitted work: the block's next user is ordered after `frontier`.
  void used_until(const Frontier& frontier) { last_use_.join(frontier); }

 private:
  PinnedPool& pool_;
  AddressRange range_;
  Frontier last_use_;
};

}  // namespace vdnn
