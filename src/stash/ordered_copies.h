#pragma once
// Copies of tensors to the host and back, and their order on streams. The class submits every wait that this
// order needs, even if a copy happens to be done:
//
//  * the copy out comes after the compute stream's work so far, after the tensor's producer if that is
//    another stream, and after the block's last use;
//  * the reuse of a released source comes after its copy out;
//  * the copy in comes after the work of the target's stream so far, and after the tensor's copy out;
//  * the reader comes after the copy in, and so does the stream on which the target is freed.
//
// Some waits are submitted to a stream long after a tensor was put or fetched with it. By then the stream may
// be capturing or destroyed, and another stream may have its handle. Streams are therefore identified by ids.
// If a stream cannot wait for a copy, the host waits instead.

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

  // The id of a stream that a tensor is put or fetched with.
  std::uint64_t id_of(StreamHandle stream) { return ids_.id_of(stream); }

  // Copies a tensor when it is saved, after its producer. The tensor is unchanged if this throws, or if
  // nothing can be copied because the stream is capturing or there is no host memory.
  CopyOut copy_out(StashedTensor& tensor, HostBlocks::Room room);
  // Copies a tensor at a later time than its save, after its producer and after the work submitted to
  // `stream` so far. Differs from copy_out() in that it also copies nothing if the tensor's producer has been
  // destroyed.
  CopyOut copy_out_later(StashedTensor& tensor, StreamHandle stream, HostBlocks::Room room);
  // Orders `stream` after the copy of `latest` and all copies that began earlier. One wait is enough, since
  // copies end in the order in which they begin.
  void order_after_copies(StreamHandle stream, const StashedTensor& latest) {
    backend_.wait(stream, latest.out.get());
  }
  // Orders the stream of the put after the copy, since the caller's allocator may reuse the source in that
  // stream's order.
  void order_producer_after_copy(const StashedTensor& tensor, StreamHandle releasing);

  // A captured stream cannot wait for work outside of its capture.
  bool is_captured(StreamHandle stream) { return backend_.is_capturing(stream); }

  void copy_in(StashedTensor& tensor, std::uint64_t target, StreamHandle stream);
  // Whether `stream` is already ordered after the fetch.
  static bool has_joined(const StashedTensor& tensor, StreamHandle stream) {
    return stream == tensor.target_stream && tensor.has_target_joined;
  }
  // Orders `stream` after the fetch. Call it before `stream` reads the target.
  void order_after_fetch(StashedTensor& tensor, StreamHandle stream);
  // Allows the caller to free the target in the order of its stream, even if no reader used that stream.
  void let_go_of_target(StashedTensor& tensor);

  // Allows the caller to free source and target in the order of their streams. If this throws, the host has
  // waited for the copies, provided that the device still works.
  void order_releases(const StashedTensor& tensor);
  // Returns the host block for reuse after its copies.
  void give_block_back(StashedTensor& tensor) noexcept;

 private:
  // Copies after the work of both streams, which may be the same.
  CopyOut copy_to_block(StashedTensor& tensor, StreamHandle producer, StreamHandle stream,
                        HostBlocks::Room room);
  void order_after(StreamHandle waiter, StreamHandle stream);
  // Orders `stream`, on which memory will be freed, after the copy. `id`: the stream's id when the tensor was
  // put or fetched.
  void order_release(StreamHandle stream, std::uint64_t id, const StashEvent& copy);

  StashBackend& backend_;
  HostBlocks& host_;
  StreamIds ids_;
};

}  // namespace vdnn::stash
