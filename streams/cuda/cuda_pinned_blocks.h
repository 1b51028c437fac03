#pragma once
// Page-locked host memory of a GPU: blocks from the operating system that CUDA locks.

#include <cstdint>
#include <optional>

#include "streams/cuda/cuda_context.h"
#include "streams/pinned_blocks.h"

namespace vdnn {

// Thread-safe.
class CudaPinnedBlocks {
 public:
  // Errors contain `budget_bytes`. Pages come from the NUMA node `node`, if there is one.
  CudaPinnedBlocks(CudaContext& context, std::uint64_t budget_bytes, std::optional<int> node);
  // Unlocks the remaining blocks; no copy may use them any more. Blocks that CUDA refuses to unlock stay
  // mapped.
  ~CudaPinnedBlocks();
  CudaPinnedBlocks(const CudaPinnedBlocks&) = delete;
  CudaPinnedBlocks& operator=(const CudaPinnedBlocks&) = delete;

  // Like PinnedBlocks::take(), but also throws OutOfMemory if CUDA cannot lock that much.
  AddressRange take(std::uint64_t bytes);
  // Throws InvalidArgument if `block` is not a whole block. If CUDA refuses to unlock the block, nothing
  // changes.
  void give_back(AddressRange block);
  bool contain(AddressRange range) const { return blocks_.contain(range); }

 private:
  CudaContext& context_;
  const std::uint64_t budget_bytes_;
  const std::optional<int> node_;
  PinnedBlocks blocks_;
};

}  // namespace vdnn
