#pragma once
// The copies of tensors to the host and back, and their order on streams. Each wait that the order needs is
// made here, and is the same whatever copies happen to be done:
//
//  * the copy out comes after what the compute stream was given, and after the block's last use;
//  * the memory of a source that is released comes after its copy out;
//  * the copy in comes after what the target's stream was given, and after the tensor's copy out;
//  * the reader comes after the copy in, and so does the stream on which the target is freed.

#include <cstdint>

#include "src/stash/host_blocks.h"
#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised.
class OrderedCopies {
 public:
  enum class CopyOut : std::uint8_t { kBegun, kStreamIsCaptured, kNoHostMemory };

  OrderedCopies(StashBackend& backend, HostBlocks& host) : backend_(backend), host_(host) {}

  // Where nothing can be copied, since `stream` is captured or there is no block of host memory, the tensor
  // is as it was. So it is where this throws.
  CopyOut copy_out(StashedTensor& tensor, StreamHandle stream, HostBlocks::Room room);
  // `stream` comes after the copy of `latest` and all that began before it: copies end in the order of their
  // beginnings.
  void order_after_copies(StreamHandle stream, const StashedTensor& latest) {
    backend_.wait(stream, latest.out.get());
  }
  // The caller's allocator may reuse a source in the order of the stream that it was put with.
  void order_producer_after_copy(const StashedTensor& tensor, StreamHandle releasing);

  void copy_in(StashedTensor& tensor, std::uint64_t target, StreamHandle stream);
  // `stream` reads the target next.
  void order_after_fetch(StashedTensor& tensor, StreamHandle stream);
  // The caller may free the target in the order of its stream, which need not be a reader's.
  void let_go_of_target(StashedTensor& tensor);

  // The caller may free source and target in the order of the streams that they were given with. If this
  // throws the host has waited, where it could.
  void order_releases(const StashedTensor& tensor);
  // The block is for the next tensor of its size once its copies are done.
  void give_block_back(StashedTensor& tensor) noexcept;

 private:
  void copy_to_block(StashedTensor& tensor, StreamHandle stream);
  void order_after(StreamHandle waiter, StreamHandle stream);
  void order_release(StreamHandle stream, const StashEvent& copy);

  StashBackend& backend_;
  HostBlocks& host_;
};

}  // namespace vdnn::stash
