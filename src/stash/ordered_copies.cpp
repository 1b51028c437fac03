#include "src/stash/ordered_copies.h"

#include <utility>

namespace vdnn::stash {

namespace {

// The part of the host block that contains the tensor.
AddressRange contents_of(const StashedTensor& tensor) {
  return {.begin = tensor.block.front().range.begin, .bytes = tensor.bytes()};
}

}  // namespace

void OrderedCopies::order_after(StreamHandle waiter, StreamHandle stream) {
  const StashEvent now = record(backend_, stream);
  backend_.wait(waiter, now.get());
}

OrderedCopies::CopyOut OrderedCopies::copy_out(StashedTensor& tensor, HostBlocks::Room room) {
  const StreamHandle producer = tensor.saved.stream;
  return is_captured(producer) ? CopyOut::kNotNow : copy_to_block(tensor, producer, producer, room);
}

OrderedCopies::CopyOut OrderedCopies::copy_out_later(StashedTensor& tensor, StreamHandle stream,
                                                     HostBlocks::Room room) {
  const StreamHandle producer = tensor.saved.stream;
  if (!ids_.is_there(producer, tensor.stream_id) || is_captured(producer) ||
      (stream != producer && is_captured(stream))) {
    return CopyOut::kNotNow;
  }
  return copy_to_block(tensor, producer, stream, room);
}

OrderedCopies::CopyOut OrderedCopies::copy_to_block(StashedTensor& tensor, StreamHandle producer,
                                                    StreamHandle stream, HostBlocks::Room room) {
  tensor.block = host_.take(tensor.bytes(), room);
  if (tensor.block.empty()) {
    return CopyOut::kNoHostMemory;
  }
  const StreamHandle offload = backend_.offload_stream();
  const HostBlock& block = tensor.block.front();
  try {
    order_after(offload, stream);
    if (producer != stream) {
      order_after(offload, producer);
    }
    if (block.last_use) {
      backend_.wait(offload, block.last_use.get());
    }
    backend_.copy_out(contents_of(tensor), tensor.saved.source, tensor.saved.contents);
  } catch (...) {
    host_.give(std::move(tensor.block), {});
    throw;
  }
  try {
    tensor.out = record(backend_, offload);
  } catch (...) {
    host_.give_unordered(std::move(tensor.block));
    throw;
  }
  return CopyOut::kBegun;
}

void OrderedCopies::order_producer_after_copy(const StashedTensor& tensor, StreamHandle releasing) {
  if (tensor.saved.stream != releasing) {
    order_release(tensor.saved.stream, tensor.stream_id, tensor.out);
  }
}

void OrderedCopies::copy_in(StashedTensor& tensor, std::uint64_t target, StreamHandle stream) {
  const StreamHandle prefetch = backend_.prefetch_stream();
  const std::uint64_t id = id_of(stream);
  const AddressRange to{.begin = target, .bytes = tensor.bytes()};
  order_after(prefetch, stream);
  backend_.wait(prefetch, tensor.out.get());
  backend_.copy_in(to, contents_of(tensor), tensor.saved.contents);
  try {
    tensor.in = record(backend_, prefetch);
  } catch (...) {
    // Without an event only the host can wait for the copy. If that fails too, the device is failing.
    backend_.synchronize_copies();
    throw;
  }
  tensor.target_stream = stream;
  tensor.target_stream_id = id;
  tensor.has_target_joined = false;
}

void OrderedCopies::order_after_fetch(StashedTensor& tensor, StreamHandle stream) {
  backend_.wait(stream, tensor.in.get());
  tensor.has_target_joined = tensor.has_target_joined || stream == tensor.target_stream;
}

void OrderedCopies::let_go_of_target(StashedTensor& tensor) {
  if (!tensor.has_target_joined) {
    order_release(tensor.target_stream, tensor.target_stream_id, tensor.in);
    tensor.has_target_joined = true;
  }
}

void OrderedCopies::order_releases(const StashedTensor& tensor) {
  if (tensor.where == Where::kInFlight) {
    order_release(tensor.saved.stream, tensor.stream_id, tensor.out);
  }
  if (tensor.where == Where::kFetched && !tensor.has_target_joined) {
    order_release(tensor.target_stream, tensor.target_stream_id, tensor.in);
  }
}

void OrderedCopies::order_release(StreamHandle stream, std::uint64_t id, const StashEvent& copy) {
  try {
    if (ids_.is_there(stream, id) && !is_captured(stream)) {
      backend_.wait(stream, copy.get());
      return;
    }
  } catch (...) {
    backend_.synchronize(copy.get());  // so later submissions of the host come after the copy
    throw;
  }
  backend_.synchronize(copy.get());
}

void OrderedCopies::give_block_back(StashedTensor& tensor) noexcept {
  if (!tensor.block.empty()) {
    host_.give(std::move(tensor.block), tensor.in ? std::move(tensor.in) : std::move(tensor.out));
  }
}

}  // namespace vdnn::stash
