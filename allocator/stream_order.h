#pragma once
// The streams of a program that we do not run: who they are, and what is known of their order. See
// vdnn/stream_pool.h for the idea.
//
// Streams are numbered for frontiers; a number is given anew when its stream is gone and all that it was
// given is done, and goes on counting, so that points of the one before are points that have been reached.
// Number 0 is the host: what it is ordered after has been reached.
//
// Guarded by the pool's lock, but for find(). The lock of a stream may be taken under it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "allocator/pool_tally.h"
#include "allocator/stream_cache.h"
#include "vdnn/error.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

struct alignas(64) PoolStream {
  PoolStream(StreamId index_, StreamHandle handle_, std::uint64_t id_, bool of_thread_)
      : handle(handle_), id(id_), index(index_), of_thread(of_thread_) {}

  // Behind what uses are of a block that is freed now: the end of its next epoch or, of a stream that has
  // ended, of all that it was given. What the host frees is done. Under `mutex`.
  Point next_point() const {
    const bool is_open = !ended && index != 0;
    return {.stream = index, .count = epoch + (is_open ? 1 : 0)};
  }

  // Who it is: read at any time, changed while `known_by_handle` is false.
  std::atomic<StreamHandle> handle;
  std::atomic<std::uint64_t> id;
  std::atomic<bool> known_by_handle{true};

  std::mutex mutex;  // guards what follows, up to the next remark
  std::uint64_t epoch = 0;
  bool freed_in_epoch = false;
  bool ended = false;  // an event stands for all that it was given, or that is done
  StreamCache cache;
  StreamTally tally;
  std::uint64_t reused_from_cache = 0;

  // Under the pool's lock.
  const StreamId index;
  bool of_thread;
  std::uint64_t readings = 0;  // blocks in use that name it as a further reader
  bool vanished = false;       // gone without notice, and its work is not known to be done
  Frontier known;              // what it is ordered after; itself included, to the end of all counts
  struct Event {
    std::uint64_t epoch = 0;  // that it has ended
    EventHandle handle = nullptr;
    Frontier after;  // what it stands for
  };
  std::deque<Event> events;  // in order of their epochs
};

struct OrderCounters {
  std::uint64_t events_recorded = 0;
  std::uint64_t stream_waits = 0;
  std::uint64_t host_waits = 0;
  std::uint64_t device_waits = 0;
};

class StreamOrder {
 public:
  StreamOrder(PoolBackend& backend, bool ends_are_told);
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  PoolStream& host() { return streams_.front(); }
  // The stream that a handle means now. From any thread without a lock; null: ask at().
  PoolStream* find(StreamHandle handle) {
    PoolStream* const found = recent_[slot_of(handle)].load(std::memory_order_acquire);
    const bool is_it =
        found != nullptr && found->known_by_handle.load(std::memory_order_acquire) &&
        found->handle.load(std::memory_order_relaxed) == handle &&
        (ends_are_told_ || found->id.load(std::memory_order_relaxed) == backend_.stream_id(handle));
    return is_it ? found : nullptr;
  }
  // Likewise; learns of new streams.
  PoolStream& at(StreamHandle handle);
  // Likewise, but null where the stream is not known.
  PoolStream* known(StreamHandle handle);
  PoolStream& at_index(StreamId index) { return streams_[index]; }
  template <class Visit>
  void for_each(const Visit& visit) {
    for (PoolStream& stream : streams_) {
      visit(stream);
    }
  }

  // What `requester` is ordered after.
  const Frontier& knowledge(PoolStream& requester);
  // Makes `requester` come after `behind`: on the device, or where it is the host, there. Throws
  // CaptureConflict, and so do the others that wait.
  void make_ready(PoolStream& requester, const Frontier& behind);
  bool is_done(const Frontier& frontier) const { return done_.dominates(frontier); }
  // What of `frontier` is not done, and not known by `stream`.
  Frontier missing(PoolStream& stream, const Frontier& frontier);
  // Blocks the host.
  void wait_until_done(const Frontier& frontier);
  void wait_until_all_is_done();
  // Likewise for all that can be waited for while streams are captured: what others than those were given.
  void wait_beside_captures();
  // Asks which events have been reached.
  void look();
  // A block is freed on `stream` now: behind which point its uses are. An event is recorded at once where no
  // other thread could record it.
  Point freed_on(PoolStream& stream);
  // Records events so that look() will see that `frontier` is done.
  void mark(const Frontier& frontier);
  // An event for what `stream` has freed in this epoch, which is its last where that is said.
  void record(PoolStream& stream, bool last = false);
  // The stream is about to go: an event stands for what blocks say of it.
  void end(PoolStream& stream);

  const OrderCounters& counters() const { return counters_; }
  // Counted by streams whose number is another's now.
  const StreamTally& retired() const { return retired_; }
  std::uint64_t retired_reused() const { return retired_reused_; }

 private:
  static constexpr std::size_t kRecent = 256;
  // Beyond, the oldest is dropped: who needs it waits for the next.
  static constexpr std::size_t kMaxEvents = 16;

  static std::size_t slot_of(StreamHandle handle) {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(handle) * 0x9e3779b97f4a7c15ULL) >> 56);
  }
  PoolStream& add(StreamHandle handle, std::uint64_t id);
  PoolStream& take_number(StreamHandle handle, std::uint64_t id, bool of_thread);
  bool is_unused(PoolStream& stream);
  // Unless blocks are, or will be, behind what it has been given since the last event.
  bool end_if_unneeded(PoolStream& stream);
  void vanish(PoolStream& stream);
  void forget_handle(PoolStream& stream);
  // Its points so that those come first whose streams know, probably, of most others.
  std::vector<Point> most_telling_first(const Frontier& frontier);
  // One that stands for `point`; null where that is done by now.
  const PoolStream::Event* event_for(Point point);
  // Whether the handle still means the stream.
  bool is_there(const PoolStream& stream);
  void refuse_capture(const PoolStream& stream, const char* what) const;
  bool is_captured(const PoolStream& stream);
  void release_done();
  void release_first(PoolStream& stream) noexcept;

  PoolBackend& backend_;
  const bool ends_are_told_;
  std::deque<PoolStream> streams_;  // by number
  std::unordered_map<std::uint64_t, PoolStream*> by_id_;
  std::unordered_map<StreamHandle, PoolStream*> by_handle_;
  std::array<std::atomic<PoolStream*>, kRecent> recent_{};
  Frontier done_;  // what the host knows to be done
  OrderCounters counters_;
  StreamTally retired_;
  std::uint64_t retired_reused_ = 0;
};

}  // namespace vdnn
