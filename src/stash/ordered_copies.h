#pragma once
// Copies of tensors to the host and back, and their order on streams. This class makes each wait that the
// order needs, and never omits one because a copy happens to be done:
//
//    * the copy out comes after the compute stream's work so far, after the tensor's producer if that is
//        another stream, and after the block's last use;
//  * the memory of a source that is released comes after its copy out;
//    * the copy in comes after the work of the target's stream so far, and after the tensor's copy out;
//  * the reader comes after the copy in, and so does the stream on which the target is freed.
//
// Some waits are given to a stream long after a tensor was put or fetched with it. By then the stream may be
// captured or destroyed, and its handle another stream's. Streams are therefore known by their ids. The host
// waits for the copy in the place of a stream that cannot.

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

  // Copies a tensor as it is saved, after its producer. The tensor is unchanged if nothing can be copied,
  // since the stream is captured or there is no block of host memory, and if this throws.
  CopyOut copy_out(StashedTensor& tensor, HostBlocks::Room room);
  // Copies a tensor later, also after the work that `stream` has been given. As copy_out(); nor can it be
  // copied if its producer is captured or destroyed.
  CopyOut copy_out_later(StashedTensor& tensor, StreamHandle stream, HostBlocks::Room room);
  // Orders `stream` after the copy of `latest` and all copies that began before it: copies end in the order
  // in which they begin.
  void order_after_copies(StreamHandle stream, const StashedTensor& latest) {
    backend_.wait(stream, latest.out.get());
  }
  // Needed since the caller's allocator may reuse a source in the order of the stream of its put.
  void order_producer_after_copy(const StashedTensor& tensor, StreamHandle releasing);

  // A captured stream cannot wait for work outside of its capture.
  bool is_captured(StreamHandle stream) { return backend_.is_capturing(stream); }

  void copy_in(StashedTensor& tensor, std::uint64_t target, StreamHandle stream);
  // Whether `stream` is already ordered after the fetch.
  static bool has_joined(const StashedTensor& tensor, StreamHandle stream) {
    return stream == tensor.target_stream && tensor.has_target_joined;
  }
  // Call before `stream` reads the target.
  void order_after_fetch(StashedTensor& tensor, StreamHandle stream);
  // Lets the caller free the target in the order of its stream, which need not be a reader's.
  void let_go_of_target(StashedTensor& tensor);

  // Lets the caller free source and target in the order of the streams that they were given with. If this
  // throws, the host has waited if it could.
  void order_releases(const StashedTensor& tensor);
  // Gives the block to the next tensor of its size, ordered after its copies.
  void give_block_back(StashedTensor& tensor) noexcept;

 private:
  // Copies after the work of both streams, which may be one.
  CopyOut copy_to_block(StashedTensor& tensor, StreamHandle producer, StreamHandle stream,
                        HostBlocks::Room room);
  void order_after(StreamHandle waiter, StreamHandle stream);
  // Orders `stream`, on which memory will be freed and which had the id `id`, after the copy.
  void order_release(StreamHandle stream, std::uint64_t id, const StashEvent& copy);

  StashBackend& backend_;
  HostBlocks& host_;
  StreamIds ids_;
};

}  // namespace vdnn::stash
