#include "allocator/stream_directory.h"

#include <algorithm>
#include <mutex>

#include "allocator/vector_room.h"
#include "vdnn/error.h"

namespace vdnn {

StreamDirectory::StreamDirectory(PoolBackend& backend, bool ends_are_told)
    : backend_(backend), ends_are_told_(ends_are_told) {
  host_.keeps_cache = true;
  taken_cached_.reserve(1);
}

PoolStream* StreamDirectory::known(StreamHandle handle) const {
  if (PoolStream* const last = ends_are_told_ ? last_of(handle) : nullptr) {
    return last;
  }
  const auto by_id = by_id_.find(backend_.stream_id(handle));
  return by_id == by_id_.end() ? nullptr : by_id->second;
}

PoolStream* StreamDirectory::last_of(StreamHandle handle) const {
  const auto by_handle = by_handle_.find(handle);
  return by_handle == by_handle_.end() || by_handle->second->of_thread ? nullptr : by_handle->second;
}

bool StreamDirectory::exists(const PoolStream& stream) const {
  if (will_tell_of_end(stream)) {
    return true;
  }
  try {
    return backend_.stream_id(stream.handle) == stream.id;
  } catch (const InvalidArgument&) {
    return false;
  }
}

PoolStream& StreamDirectory::new_stream() {
  if (spare_streams_.empty()) {
    make_room(spare_streams_, streams_.size() + 1);
    make_room(taken_cached_, streams_.size() + 2);
    streams_.emplace_back();
    return streams_.back();
  }
  PoolStream& stream = *spare_streams_.back();
  spare_streams_.pop_back();
  stream.is_spare = false;
  return stream;
}

void StreamDirectory::identify(PoolStream& stream, StreamHandle handle, std::uint64_t id) {
  {
    const std::lock_guard lock(stream.mutex);
    stream.handle.store(handle);
    stream.id.store(id);
    stream.ended = false;
  }
  stream.of_thread = backend_.is_of_thread(handle);
}

void StreamDirectory::publish(PoolStream& stream) {
  by_id_.emplace(stream.id, &stream);
  by_handle_[stream.handle] = &stream;
  stream.known_by_handle.store(true, std::memory_order_release);
}

void StreamDirectory::forget_handle(PoolStream& stream) {
  {
    const std::lock_guard lock(stream.mutex);
    stream.known_by_handle.store(false, std::memory_order_release);
  }
  const auto by_id = by_id_.find(stream.id);
  if (by_id != by_id_.end() && by_id->second == &stream) {
    by_id_.erase(by_id);
  }
  const auto by_handle = by_handle_.find(stream.handle);
  if (by_handle != by_handle_.end() && by_handle->second == &stream) {
    by_handle_.erase(by_handle);
  }
}

void StreamDirectory::recycle(PoolStream& stream) {
  if (stream.known_by_handle) {
    forget_handle(stream);
  }
  const std::lock_guard lock(stream.mutex);
  stream.ended = true;
  recycled_.absorb(std::exchange(stream.tally, {}));
  recycled_reused_ += std::exchange(stream.reused_from_cache, 0);
  stream.known.clear();
  stream.vanished = false;
  stream.is_spare = true;
  spare_streams_.push_back(&stream);  // new_stream() reserved space
}

const std::vector<PoolStream*>& StreamDirectory::take_cached() {
  taken_cached_.clear();
  for (PoolStream* stream = cached_.take_all(); stream != nullptr;) {
    taken_cached_.push_back(stream);  // new_stream() reserved space
    const std::lock_guard lock(stream->mutex);
    stream->is_in_cached = false;
    stream = stream->next_cached;
  }
  std::ranges::sort(taken_cached_, {}, [](const PoolStream* stream) { return stream->number; });
  return taken_cached_;
}

}  // namespace vdnn
