#pragma once
// The copies of tensors to the host and back, and their order on streams. Each wait that the order needs is
// made here, and is the same whatever copies happen to be done:
//
//  * the copy out comes after what the compute stream was given, and the tensor's producer, where that is
//    another stream; and after the block's last use;
//  * the memory of a source that is released comes after its copy out;
//  * the copy in comes after what the target's stream was given, and after the tensor's copy out;
//  * the reader comes after the copy in, and so does the stream on which the target is freed.
//
// Streams that a tensor was put or fetched with are given waits later, when they may be gone, their handle
// another stream's, or captured. They are known by their ids. In the place of one that cannot wait the host
// waits for the copy.

#include <cstdint>

#include "src/stash/host_blocks.h"
#include "src/stash/stashed_tensor.h"
#include "src/stash/stream_ids.h"

namespace vdnn::stash {

// Not synchronised.
class OrderedCopies {
 public:
  enum class CopyOut : std::uint8_t { kBegun, kNotNow, kNoHostMemory };

  OrderedCopies(StashBackend& backend, HostBlocks& host) : backend_(backend), host_(host), ids_(backend) {}

  // Of a stream that a tensor is put or fetched with.
  std::uint64_t id_of(StreamHandle stream) { return ids_.id_of(stream); }

  // With its save: after its producer. Where nothing can be copied, since the stream is captured or there is
  // no block of host memory, the tensor is as it was. So it is where this throws.
  CopyOut copy_out(StashedTensor& tensor, HostBlocks::Room room);
  // Later, and also after what `stream` has been given. Likewise; nor can it be copied where its producer is
  // captured or gone.
  CopyOut copy_out_later(StashedTensor& tensor, StreamHandle stream, HostBlocks::Room room);
  // `stream` comes after the copy of `latest` and all that began before it: copies end in the order of their
  // beginnings.
  void order_after_copies(StreamHandle stream, const StashedTensor& latest) {
    backend_.wait(stream, latest.out.get());
  }
  // The caller's allocator may reuse a source in the order of the stream that it was put with.
  void order_producer_after_copy(const StashedTensor& tensor, StreamHandle releasing);

  // Nothing outside of a capture can be waited for in it.
  bool is_captured(StreamHandle stream) { return backend_.is_capturing(stream); }

  void copy_in(StashedTensor& tensor, std::uint64_t target, StreamHandle stream);
  // Whether `stream` comes after the fetch already.
  static bool has_joined(const StashedTensor& tensor, StreamHandle stream) {
    return stream == tensor.target_stream && tensor.has_target_joined;
  }
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
  // After both streams, which may be one.
  CopyOut copy_to_block(StashedTensor& tensor, StreamHandle producer, StreamHandle stream,
                        HostBlocks::Room room);
  void order_after(StreamHandle waiter, StreamHandle stream);
  // `stream`, of that id when it was given, is freed on.
  void order_release(StreamHandle stream, std::uint64_t id, const StashEvent& copy);

  StashBackend& backend_;
  HostBlocks& host_;
  StreamIds ids_;
};

}  // namespace vdnn::stash
