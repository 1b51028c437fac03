#pragma once
// The streams of a program that we do not run: who they are, and what is known of their order. See
// vdnn/stream_pool.h for the idea.
//
// Numbers. A stream has a number in clocks and frontiers only while points of it may matter. One that has
// ended is *retired*: a single event stands for all of it. It is *settled* once the host knows that event to
// have been reached. Its number is another's then and goes on counting, so that points of the one before are
// points that have been reached. At most kMaxRetired streams are retired and not settled: for the next one,
// the host makes sure of the oldest. Streams that have been quiet while many others came, and whose end
// nobody may tell, are *parked* in the same way; the host makes sure of the oldest only where it is gone or a
// thread's default stream, or there are very many numbers. A stream that has gone without notice has
// *vanished*: no event stands for it, and who needs its memory waits for the device. So does the host where
// more than kMaxVanished have, which settles them. During a capture it must not; where more than
// kMaxVanishedInCapture have, streams that are new are refused until it has ended.
// Number 0 is that of the host and of streams that have none: what they are ordered after has been reached.
//
// Events. Of what is known, two clocks are kept. `done_` is what decides: it changes where the program's
// calls make the host wait, so placement does not depend on how fast the device is. `reached_` is all that
// was seen to be done: events that it dominates go back to the backend and are not waited for any more. With
// each event that is recorded two others are looked at. At most kMaxEvents exist.
//
// Cost. Clocks are as wide as there are numbers. A call joins one for each event that it waits for, and
// copies one for each that it records. Flushing caches visits the streams that have freed since they were
// visited last. Waiting for the device visits all that are there, since any may have been captured meanwhile,
// and those that have freed, ended or vanished or are parked. Nothing else visits all streams, but statistics
// and the end of a pool during a capture.
//
// Guarded by the pool's lock, but for find(). The lock of a stream may be taken under it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/covered_points.h"
#include "allocator/intrusive_list.h"
#include "allocator/pool_tally.h"
#include "allocator/stream_cache.h"
#include "allocator/stream_clock.h"
#include "vdnn/error.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

struct PoolStream;

struct StreamEvent {
  PoolStream* stream = nullptr;
  std::uint64_t epoch = 0;   // of the stream, that it has ended
  std::uint64_t number = 0;  // of all events, in the order in which they were recorded
  EventHandle handle = nullptr;
  bool is_held = false;  // the handle is; else the event has been reached
  StreamClock after;     // what it stands for
  ListLinks<StreamEvent> of_stream;
  ListLinks<StreamEvent> of_open;
  ListLinks<StreamEvent> of_held;
};

struct alignas(64) PoolStream {
  // After which point its uses are of a block that is freed now: the end of its next epoch or, of a stream
  // that has ended, of all that it was given. Those of one without a number are done. Under `mutex`.
  Point next_point() const {
    return number == 0 ? Point{} : Point{.stream = number, .count = epoch + (ended ? 0 : 1)};
  }

  // Who it is: read at any time, changed under `mutex`.
  std::atomic<StreamHandle> handle{nullptr};
  std::atomic<std::uint64_t> id{0};
  std::atomic<bool> known_by_handle{false};

  std::mutex mutex;  // guards what follows, up to the next remark; what says so is changed under both locks
  StreamId number = 0;       // both
  std::uint64_t epoch = 0;   // both
  bool ended = false;        // both: an event stands for all that it was given, or that is done
  bool keeps_cache = false;  // both
  bool freed_in_epoch = false;
  bool used = false;  // since the pool last looked
  bool is_in_freed = false;
  bool is_in_cached = false;
  StreamCache cache;
  StreamTally tally;
  std::uint64_t reused_from_cache = 0;
  PoolStream* next_freed = nullptr;
  PoolStream* next_cached = nullptr;

  // Under the pool's lock.
  bool of_thread = false;
  bool vanished = false;  // gone without notice, and its work is not known to be done
  bool is_parked = false;
  bool is_spare = false;
  std::uint64_t readings = 0;   // blocks in use that name it as a further reader
  std::uint64_t cut = 0;        // see wait_until_all_is_done()
  std::uint64_t last_look = 0;  // that found it busy
  StreamClock known;            // what it is ordered after; itself included, to the end of all counts
  IntrusiveList<StreamEvent, &StreamEvent::of_stream> events;  // in order of their epochs
  ListLinks<PoolStream> of_retired;
};

struct OrderCounters {
  std::uint64_t events_recorded = 0;
  std::uint64_t events_held = 0;  // now
  std::uint64_t stream_waits = 0;
  std::uint64_t host_waits = 0;
  std::uint64_t device_waits = 0;
  std::uint64_t streams_visited = 0;  // by what looks at several
};

class StreamOrder {
 public:
  // Of streams that have not retired, and of one stream. Beyond, the oldest is dropped: who needs it waits
  // for the next.
  static constexpr std::size_t kMaxOpenEvents = 640;
  static constexpr std::size_t kMaxEventsOfStream = 16;
  static constexpr std::size_t kMaxRetired = 128;  // as many as a GPU runs kernels at once
  static constexpr std::size_t kMaxParked = 256;
  static constexpr std::size_t kMaxVanished = 128;
  static constexpr std::size_t kMaxVanishedInCapture = 1024;
  static constexpr std::size_t kMaxEvents = kMaxOpenEvents + kMaxRetired + kMaxParked;

  // `flush` empties the cache of a stream; it is called under the pool's lock.
  StreamOrder(PoolBackend& backend, bool ends_are_told, std::function<void(PoolStream&)> flush);
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // --- who streams are -------------------------------------------------------------------------------------
  PoolStream& host() { return host_; }
  // The stream that a handle meant when it was asked. Without the pool's lock it may become another one's:
  // is_still() says, under the stream's.
  struct Found {
    PoolStream* stream = nullptr;  // null: ask at()
    std::uint64_t id = 0;

    bool is_still() const {
      return stream->known_by_handle.load(std::memory_order_relaxed) &&
             stream->id.load(std::memory_order_relaxed) == id;
    }
  };
  // From any thread without a lock.
  Found find(StreamHandle handle) {
    PoolStream* const found = recent_[slot_of(handle)].load(std::memory_order_acquire);
    if (found == nullptr || !found->known_by_handle.load(std::memory_order_acquire) ||
        found->handle.load(std::memory_order_relaxed) != handle) {
      return {};
    }
    const std::uint64_t id = found->id.load(std::memory_order_relaxed);
    const bool is_it = ends_are_told_ || id == backend_.stream_id(handle);
    return {.stream = is_it ? found : nullptr, .id = id};
  }
  // Likewise; learns of new streams.
  PoolStream& at(StreamHandle handle);
  // Likewise, but null where the stream is not known.
  PoolStream* known(StreamHandle handle);
  template <class Visit>
  void for_each(const Visit& visit) {
    visit(host_);
    for (PoolStream& stream : streams_) {
      visit(stream);
    }
  }
  // Those that a block has been put into the cache of since the last call, in order of their numbers. The
  // span is valid until the next call.
  const std::vector<PoolStream*>& take_cached();
  // `stream` has one. Under its lock.
  void has_cached(PoolStream& stream) {
    if (!std::exchange(stream.is_in_cached, true)) {
      cached_.push(stream);
    }
  }
  // A block is freed in the epoch that goes on. Under the stream's lock.
  void has_freed(PoolStream& stream) {
    stream.freed_in_epoch = stream.number != 0;
    if (stream.freed_in_epoch && !std::exchange(stream.is_in_freed, true)) {
      freed_.push(stream);
    }
  }
  // The stream is about to go: an event stands for what blocks say of it.
  void end(PoolStream& stream);
  // Nothing of it may be left: then it can be another one, and is not known any more. To be called where a
  // block of one that may have ended or be settled is freed.
  void recycle(PoolStream& stream);

  // --- their order -----------------------------------------------------------------------------------------
  // What `requester` is ordered after.
  StreamKnowledge knowledge(const PoolStream& requester) const { return {requester.known, done_}; }
  // Makes `requester` come after `behind`: on the device, or where it is the host, there. Throws
  // CaptureConflict, and so do the others that wait.
  void make_ready(PoolStream& requester, const Frontier& behind);
  // As far as has been seen.
  bool is_done(const Frontier& frontier) const {
    return StreamKnowledge(reached_, done_).dominates(frontier);
  }
  // What of `frontier` is not done, and not known by `stream`.
  Frontier missing(const PoolStream& stream, const Frontier& frontier) const;
  // Blocks the host.
  void wait_until_done(const Frontier& frontier);
  void wait_until_all_is_done();
  // Likewise while streams are captured, as far as can be: what others than those were given. Whether that is
  // all that blocks were used for. Blocks in use count as freed now, by the stream that they are for; of
  // those that are for none, nobody knows. What a stream refuses does not keep the others from being waited
  // for.
  bool wait_beside_captures() noexcept;
  // Whether a stream that is known is captured: each that is there is asked.
  bool any_is_captured();
  // Asks which events have been reached, of each stream up to the first that has not.
  void look();
  // A block is freed on `stream` now: after which point its uses are. An event is recorded at once where no
  // other thread could record it.
  Point freed_on(PoolStream& stream);
  // Likewise, where nobody knows which stream has used it last: all work of the device.
  Point freed_by_unknown();
  // Records events so that look() will see that `frontier` is done.
  void mark(const Frontier& frontier);

  // The points that whoever is ordered after `last_use` is ordered after, too, and those that are done.
  class Covered final : public CoveredPoints {
   public:
    // `order` must outlive it and not change.
    Covered(const StreamOrder& order, const Frontier& last_use);
    bool contain(Point point) const override;

   private:
    static constexpr std::size_t kClocks = 4;  // of the first points; more are rare

    const StreamClock& done_;
    std::array<StreamId, kClocks> streams_{};
    std::array<const StreamClock*, kClocks> clocks_{};
    std::size_t count_ = 0;
  };

  const OrderCounters& counters() const { return counters_; }
  // Numbers that streams have.
  std::size_t tracked() const { return numbers_.size() - 1 - free_numbers_.size(); }
  // Counted by streams that are others now.
  const StreamTally& retired() const { return recycled_; }
  std::uint64_t retired_reused() const { return recycled_reused_; }

 private:
  static constexpr std::size_t kRecent = 2048;
  // As long as fewer are held, events are not asked for, nor numbers taken back from streams that are quiet.
  static constexpr std::size_t kFewEvents = 16;
  static constexpr std::size_t kFewNumbers = 64;
  // Above, clocks cost more than a wait of the host.
  static constexpr std::size_t kManyNumbers = 4096;
  // Looked at for each that is new. A stream is parked when it is looked at for the second time, so that
  // numbers outlive the need for them by a third of what is needed.
  static constexpr int kLooksAtEvents = 2;
  static constexpr int kLooksAtStreams = 8;

  struct Number {
    PoolStream* stream = nullptr;  // null: none has it
    std::uint64_t count = 0;       // where the next one's epochs begin
  };

  static std::size_t slot_of(StreamHandle handle) {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(handle) * 0x9e3779b97f4a7c15ULL) >> 53);
  }

  // --- streams
  PoolStream& add(StreamHandle handle, std::uint64_t id);
  PoolStream& new_stream();
  // So that the stream can free: its number, where it has lost it.
  void take_number(PoolStream& stream);
  void leave_number(PoolStream& stream);
  void forget_handle(PoolStream& stream);
  void vanish(PoolStream& stream);
  // Whether the handle still means the stream.
  bool is_there(const PoolStream& stream);
  // Some numbers, in turn.
  void look_for_quiet_streams() noexcept;
  void park_if_quiet(PoolStream& stream);
  void unpark(PoolStream& stream);
  void limit_parked() noexcept;
  // It has ended or vanished.
  void retire(PoolStream& stream);
  void keep_last_event(PoolStream& stream);
  // It is used again.
  void come_back(PoolStream& stream);
  void limit_retired() noexcept;
  // Throws CaptureConflict where they are too many and a capture keeps the host from waiting.
  void limit_vanished();
  // All that it was given is done.
  void settle(PoolStream& stream);
  bool is_settled(const PoolStream& stream) const;
  // Whether an event stands for all that blocks say of it, or that is done.
  bool is_covered(const PoolStream& stream) const;

  // --- events
  // An event for what `stream` has freed in this epoch, which is its last where that is said.
  StreamEvent& record(PoolStream& stream, bool last = false);
  StreamEvent& new_event();
  // One that stands for `point`; null where that is done by now.
  StreamEvent* event_for(Point point);
  // Null where there is none. A stream has the number.
  StreamEvent* existing_event(Point point) const;
  // What whoever is ordered after `point` is ordered after; null where that is not known.
  const StreamClock* stands_for(Point point) const;
  void ask_some() noexcept;
  // Whether it has been reached.
  bool ask(StreamEvent& event);
  void let_go(StreamEvent& event) noexcept;
  void drop(StreamEvent& event) noexcept;
  void drop_all(PoolStream& stream) noexcept;
  void limit_open() noexcept;
  void wait_for(StreamEvent& event);
  void collect_missing(const PoolStream& requester, const Frontier& behind);
  void refuse_capture(const PoolStream& stream, const char* what) const;
  void refuse_any_capture();
  bool wait_beside_captures(PoolStream& stream);

  PoolStream host_;
  PoolBackend& backend_;
  const bool ends_are_told_;
  const std::function<void(PoolStream&)> flush_;

  std::deque<PoolStream> streams_;
  std::vector<PoolStream*> spare_streams_;  // has room for all
  std::unordered_map<std::uint64_t, PoolStream*> by_id_;
  std::unordered_map<StreamHandle, PoolStream*> by_handle_;
  std::array<std::atomic<PoolStream*>, kRecent> recent_{};
  std::vector<Number> numbers_;         // the first is the host's
  std::vector<StreamId> free_numbers_;  // has room for all
  std::size_t hand_ = 0;                // among numbers: see look_for_quiet_streams()
  // The oldest first.
  IntrusiveList<PoolStream, &PoolStream::of_retired> retired_;  // ended
  IntrusiveList<PoolStream, &PoolStream::of_retired> vanished_;
  IntrusiveList<PoolStream, &PoolStream::of_retired> parked_;
  PoolStream* unknown_ = nullptr;                              // that has vanished, see freed_by_unknown()
  IntrusiveStack<PoolStream, &PoolStream::next_freed> freed_;  // since the last wait for the device
  IntrusiveStack<PoolStream, &PoolStream::next_cached> cached_;
  std::vector<PoolStream*> taken_cached_;

  std::deque<StreamEvent> events_;
  std::vector<StreamEvent*> spare_events_;  // has room for all
  IntrusiveList<StreamEvent, &StreamEvent::of_open>
      open_;  // of streams that have not retired, the oldest first
  IntrusiveList<StreamEvent, &StreamEvent::of_held> held_;  // in the order in which they will be asked
  std::uint64_t next_event_ = 1;
  std::uint64_t looks_ = 0;

  StreamClock done_;     // has room for all numbers; so has the next
  StreamClock reached_;  // dominates it
  struct Missing {
    std::uint64_t event = 0;
    Point point;
  };
  std::vector<Missing> missing_;  // kept for its memory
  OrderCounters counters_;
  StreamTally recycled_;
  std::uint64_t recycled_reused_ = 0;
};

}  // namespace vdnn
