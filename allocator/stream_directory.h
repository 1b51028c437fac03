#pragma once
// The streams of the program: which of them a handle means, and whether it still exists.
//
// The program may destroy a stream, and the system may give its handle to another one. So a stream is
// identified by its ID, which is never used again. A handle is trusted only if its ID is the same as before,
// or if the caller has promised to report each stream's end. CUDA's per-thread default stream is one handle
// for many streams.
//
// Guarded by the pool's lock, except for recall(). The lock of a stream may be taken under it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/intrusive_list.h"
#include "allocator/pool_stream.h"
#include "allocator/pool_tally.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

// The stream that a handle meant when recall() was called. Unless the pool is locked, the handle may mean
// another stream later; is_still(), called under the stream's lock, detects this.
struct RecalledStream {
  PoolStream* stream = nullptr;  // null: not known without the lock
  std::uint64_t id = 0;

  bool is_still() const {
    return stream->known_by_handle.load(std::memory_order_relaxed) &&
           stream->id.load(std::memory_order_relaxed) == id;
  }
};

class StreamDirectory {
 public:
  // `ends_are_told`: see StreamPoolOptions.
  StreamDirectory(PoolBackend& backend, bool ends_are_told);
  StreamDirectory(const StreamDirectory&) = delete;
  StreamDirectory& operator=(const StreamDirectory&) = delete;

  // The record of the host.
  PoolStream& host() { return host_; }

  // --- look-up ---------------------------------------------------------------------------------------------
  // Any thread may call it without a lock. Finds only streams that were lately passed to remember().
  RecalledStream recall(StreamHandle handle) {
    PoolStream* const recent = recent_[slot_of(handle)].load(std::memory_order_acquire);
    if (recent == nullptr || !recent->known_by_handle.load(std::memory_order_acquire) ||
        recent->handle.load(std::memory_order_relaxed) != handle) {
      return {};
    }
    const std::uint64_t id = recent->id.load(std::memory_order_relaxed);
    const bool is_same = ends_are_told_ || id == backend_.stream_id(handle);
    return {.stream = is_same ? recent : nullptr, .id = id};
  }
  void remember(StreamHandle handle, PoolStream& stream) {
    recent_[slot_of(handle)].store(&stream, std::memory_order_release);
  }
  // The stream that `handle` means; null if it is not known.
  PoolStream* known(StreamHandle handle) const;
  // The stream that `handle` meant last; null if there is none, or if the handle means many streams.
  PoolStream* last_of(StreamHandle handle) const;
  // Whether the handle of a known stream still means it.
  bool exists(const PoolStream& stream) const;
  // Whether the caller has promised to report the stream's end.
  bool will_tell_of_end(const PoolStream& stream) const { return ends_are_told_ && !stream.of_thread; }

  // Calls visit(stream) for the host and for all streams, those that were recycled included.
  template <class Visit>
  void for_each(const Visit& visit) {
    visit(host_);
    for (PoolStream& stream : streams_) {
      visit(stream);
    }
  }
  std::deque<PoolStream>& streams() { return streams_; }
  const std::unordered_map<std::uint64_t, PoolStream*>& known_by_id() const { return by_id_; }

  // --- streams that come and go ----------------------------------------------------------------------------
  // Returns a record without a handle: a recycled or a new one.
  PoolStream& new_stream();
  // From now on, `stream` represents the stream that `handle` means; `id` is that stream's ID.
  void identify(PoolStream& stream, StreamHandle handle, std::uint64_t id);
  // From now on the stream is found by ID and handle. If publish() throws, undo it with forget_handle().
  void publish(PoolStream& stream);
  void forget_handle(PoolStream& stream);
  // Recycles the record of a stream that nothing depends on any more: new_stream() may return it. Adds the
  // stream's figures to recycled().
  void recycle(PoolStream& stream);
  const StreamTally& recycled() const { return recycled_; }
  std::uint64_t recycled_reused() const { return recycled_reused_; }

  // --- caches to be flushed --------------------------------------------------------------------------------
  // Notes that a block was put into the cache of the stream. The caller holds the stream's lock.
  void note_cached(PoolStream& stream) {
    if (!std::exchange(stream.is_in_cached, true)) {
      cached_.push(stream);
    }
  }
  // The streams passed to note_cached() since the last call of this function, in order of their numbers.
  // Valid until the next call.
  const std::vector<PoolStream*>& take_cached();

 private:
  static constexpr std::size_t kRecent = 2048;

  static std::size_t slot_of(StreamHandle handle) {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(handle) * 0x9e3779b97f4a7c15ULL) >> 53);
  }

  PoolStream host_;
  PoolBackend& backend_;
  const bool ends_are_told_;
  std::array<std::atomic<PoolStream*>, kRecent> recent_{};
  std::deque<PoolStream> streams_;
  std::vector<PoolStream*> spare_streams_;  // has capacity for all streams
  std::unordered_map<std::uint64_t, PoolStream*> by_id_;
  std::unordered_map<StreamHandle, PoolStream*> by_handle_;
  IntrusiveStack<PoolStream, &PoolStream::next_cached> cached_;
  std::vector<PoolStream*> taken_cached_;  // has capacity for all streams
  StreamTally recycled_;
  std::uint64_t recycled_reused_ = 0;
};

}  // namespace vdnn
