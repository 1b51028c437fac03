#pragma once
// Tracks the order of the streams of a program that we do not run, and enforces it by waits. See
// vdnn/stream_pool.h for the idea, allocator/stream_numbers.h for clocks, and allocator/stream_events.h for
// events.
//
// The life of a stream. A stream that has ended is *retired*: a single event represents all of its work. It
// is *settled* once the host knows that event to have been reached; then it loses its number. At most
// kMaxRetired streams are retired and not settled: for the next one, the host waits for the oldest.
//
// A stream that has been quiet while many others came, and whose end may go unreported, is *parked* in the
// same way. The host waits for the oldest parked stream only if it is gone, if it is a thread's default
// stream, or if there are very many numbers.
//
// A stream that has gone without notice has *vanished*: no event represents it, and a stream that needs its
// memory waits for the device. If more than kMaxVanished have vanished, the host waits for the device, which
// settles them. During a capture it must not; if more than kMaxVanishedInCapture have vanished then, new
// streams are refused until the capture has ended.
//
// Cost. A call joins one clock for each event that it waits for, and copies one for each event that it
// records. Flushing caches visits the streams that have freed since the last flush. Waiting for the device
// visits all streams that exist, since any of them may have been captured meanwhile, and those that have
// freed, ended or vanished or are parked. Nothing else visits all streams, except statistics and the end of a
// pool during a capture.
//
// Guarded by the pool's lock, except for recall(). The lock of a stream may be taken under it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "allocator/covered_points.h"
#include "allocator/intrusive_list.h"
#include "allocator/pool_stream.h"
#include "allocator/pool_tally.h"
#include "allocator/stream_clock.h"
#include "allocator/stream_directory.h"
#include "allocator/stream_events.h"
#include "allocator/stream_numbers.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

class StreamOrder {
 public:
  static constexpr std::size_t kMaxRetired = 128;  // as many kernels as a GPU runs at once
  static constexpr std::size_t kMaxParked = 256;
  static constexpr std::size_t kMaxVanished = 128;
  static constexpr std::size_t kMaxVanishedInCapture = 1024;
  static constexpr std::size_t kMaxEvents = StreamEvents::kMaxOpen + kMaxRetired + kMaxParked;

  // `flush` empties the cache of a stream; it is called under the pool's lock.
  StreamOrder(PoolBackend& backend, bool ends_are_told, std::function<void(PoolStream&)> flush);
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // --- streams ---------------------------------------------------------------------------------------------
  PoolStream& host() { return directory_.host(); }
  // Any thread may call it without a lock.
  RecalledStream recall(StreamHandle handle) { return directory_.recall(handle); }
  // The stream that `handle` means; adds new streams. Throws what the backend throws, and CaptureConflict if
  // too many streams have vanished during a capture.
  PoolStream& at(StreamHandle handle);
  // Null if the stream is not known.
  PoolStream* known(StreamHandle handle) const { return directory_.known(handle); }
  // Calls visit(stream) for the host and for all streams, those that were recycled included.
  template <class Visit>
  void for_each(const Visit& visit) {
    directory_.for_each(visit);
  }
  // The program is about to destroy the stream: an event represents its frees.
  void end(PoolStream& stream);
  // Forgets the stream if nothing of it is left. Must be called when a block is freed whose stream may have
  // ended or be settled.
  void recycle(PoolStream& stream);

  // --- frees -----------------------------------------------------------------------------------------------
  // A block is freed on `stream` now: returns the point after its uses. Records an event at once if no other
  // thread could record it.
  Point freed_on(PoolStream& stream);
  // Likewise, if the streams that used the block last are not known: all work of the device counts.
  Point freed_by_unknown();
  // A block is freed in the current epoch of `stream`. The caller holds the stream's lock.
  void note_freed(PoolStream& stream) {
    stream.freed_in_epoch = stream.number != 0;
    if (stream.freed_in_epoch && !std::exchange(stream.is_in_freed, true)) {
      freed_.push(stream);
    }
  }
  // A block was put into the cache of `stream`. The caller holds the stream's lock.
  void note_cached(PoolStream& stream) { directory_.note_cached(stream); }
  // The streams passed to note_cached() since the last call of this function, in order of their numbers.
  // Valid until the next call.
  const std::vector<PoolStream*>& take_cached();

  // --- order -----------------------------------------------------------------------------------------------
  // The points that `requester` is ordered after.
  StreamKnowledge knowledge(const PoolStream& requester) const { return {requester.known, numbers_.done()}; }
  // Makes `requester` come after `frontier`: by waits on the device or, for the host, on the host. This and
  // the other functions that wait throw CaptureConflict if a capture forbids it, and what the backend throws.
  void make_ready(PoolStream& requester, const Frontier& frontier);
  // Whether `frontier` is done, as far as has been seen.
  bool is_done(const Frontier& frontier) const {
    return StreamKnowledge(numbers_.reached(), numbers_.done()).dominates(frontier);
  }
  // The points of `frontier` that are not done, and that `stream` is not ordered after.
  Frontier missing(const PoolStream& stream, const Frontier& frontier) const;
  // Blocks the host.
  void wait_until_done(const Frontier& frontier);
  void wait_until_all_is_done();
  // Likewise, as far as captures allow, for all work that uses blocks. Blocks in use count as freed now, by
  // the stream that they were allocated for. Returns false if some of that work may go on: on streams that
  // are captured or gone, or on a block that was allocated for the host.
  bool wait_for_all_users();
  // Asks the backend which events have been reached, so that is_done() sees it.
  void poll_events() { events_.poll(); }
  // Records events so that poll_events() will find out when `frontier` is done.
  void record_events_for(const Frontier& frontier);

  // The points that are done, and those that every stream ordered after `last_use` is ordered after, too.
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

  // --- figures ---------------------------------------------------------------------------------------------
  const OrderCounters& counters() const { return counters_; }
  std::size_t streams_tracked() const { return numbers_.given(); }
  // Counted by streams that were recycled since.
  const StreamTally& recycled() const { return directory_.recycled(); }
  std::uint64_t recycled_reused() const { return directory_.recycled_reused(); }

 private:
  using StreamList = IntrusiveList<PoolStream, &PoolStream::of_retired>;

  // As long as streams have fewer numbers, none is taken back from quiet streams.
  static constexpr std::size_t kFewNumbers = 64;
  // Above, clocks cost more than a wait of the host.
  static constexpr std::size_t kManyNumbers = 4096;
  // Numbers visited for each new stream. A stream is parked at the second visit, so numbers outlive the need
  // for them by a third of what is needed.
  static constexpr int kVisitsPerStream = 8;

  // --- life
  PoolStream& add(StreamHandle handle, std::uint64_t id);
  // `stream` is used again.
  void come_back(PoolStream& stream);
  void vanish(PoolStream& stream);
  void flush_if_possible(PoolStream& stream);
  void park_quiet_streams() noexcept;
  void park_if_quiet(PoolStream& stream);
  void unpark(PoolStream& stream);
  // `stream` has ended or vanished.
  void retire(PoolStream& stream);
  // All work of the stream is done.
  void settle(PoolStream& stream);
  void settle_all(const StreamList& streams);
  // Whether an event represents all its frees, or all of them are done.
  bool is_covered(const PoolStream& stream) const;
  void limit_retired() noexcept;
  void limit_parked() noexcept;
  void limit_vanished();

  // --- order
  // An event that represents `point`; null if the point is done by now.
  StreamEvent* event_for(Point point);
  // The clock of everything that `point` implies; null if it is not known.
  const StreamClock* clock_of(Point point) const;
  void collect_missing(const PoolStream& requester, const Frontier& frontier);
  PoolStream* end_epochs_of_freed();
  template <class Visit>
  void visit_freed(PoolStream* freed, const Visit& visit);
  void retire_vanished();
  // Whether an event can be recorded on `stream`.
  bool can_record(const PoolStream& stream);
  // Whether a known stream is captured; asks each that exists.
  bool any_is_captured();
  // Throws CaptureConflict if a known stream is captured. Finds streams that have gone.
  void refuse_any_capture();
  bool wait_beside_captures() noexcept;
  bool wait_beside_captures(PoolStream& stream);

  StreamDirectory directory_;
  PoolBackend& backend_;
  const std::function<void(PoolStream&)> flush_;
  OrderCounters counters_;
  StreamNumbers numbers_;
  StreamEvents events_;

  // Each list has the oldest stream first.
  StreamList retired_;
  StreamList vanished_;
  StreamList parked_;
  PoolStream* unknown_ = nullptr;                              // a vanished stream: see freed_by_unknown()
  IntrusiveStack<PoolStream, &PoolStream::next_freed> freed_;  // since the last wait for the device

  struct Missing {
    std::uint64_t event = 0;
    Point point;
  };
  std::vector<Missing> missing_;  // kept for its memory
};

}  // namespace vdnn
