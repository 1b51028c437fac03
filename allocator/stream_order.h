#pragma once
// Tracks which points each stream of the program is ordered after, and makes streams wait. See
// vdnn/stream_pool.h for the idea, allocator/stream_numbers.h for clocks, and allocator/stream_events.h for
// events.
//
// The life of a stream. A stream that has ended is *retired*: a single event represents all of its work. It
// is *settled* once the host knows that this event has been reached; then the stream loses its number. At
// most kMaxRetired streams are retired and not settled: when one more is retired, the host waits for the
// oldest.
//
// A stream whose end may go unreported, and that was not used while many new streams appeared, is *parked*:
// as for a retired stream, one event represents all of its work. If more than kMaxParked streams are parked,
// the oldest is no longer parked and counts as used. But if it is gone or is a thread's default stream, or
// if streams have kManyNumbers numbers, the host waits for it instead, and it is settled.
//
// A stream that has gone without notice has *vanished*: no event represents it, and a stream that needs its
// memory waits for the device. If more than kMaxVanished streams have vanished, the host waits for the
// device, and the vanished streams are settled. During a capture the host must not wait for the device: once
// more than kMaxVanishedInCapture streams have vanished, new streams are refused until the capture has
// ended.
//
// Cost. A call joins one clock for each event that it waits for, and copies one for each event that it
// records. Flushing caches visits the streams that have freed since the last flush. Waiting for the device
// visits all streams that exist, since any of them may have been captured meanwhile. It also visits the
// streams that have freed blocks, have ended or vanished, or are parked. Nothing else visits all streams,
// except statistics and the end of a pool during a capture.
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
  // The stream that `handle` means; null if it is not known.
  PoolStream* known(StreamHandle handle) const { return directory_.known(handle); }
  // Calls visit(stream) for the host and for all streams, those that were recycled included.
  template <class Visit>
  void for_each(const Visit& visit) {
    directory_.for_each(visit);
  }
  // Ends a stream that the program is about to destroy. Records an event if blocks still depend on the
  // stream.
  void end(PoolStream& stream);
  // Recycles the record of the stream if the stream has no number and no block in use or cached depends on
  // it. Call it when a block is freed whose stream may have ended or be settled.
  void recycle(PoolStream& stream);

  // --- frees -----------------------------------------------------------------------------------------------
  // Returns the point after the uses of a block that is freed on `stream` now. Records an event immediately
  // if no other thread could record it later.
  Point freed_on(PoolStream& stream);
  // Likewise for a block whose last users are not known: all work of the device counts as its users.
  Point freed_by_unknown();
  // Notes that a block is freed in the current epoch of `stream`. The caller holds the stream's lock.
  void note_freed(PoolStream& stream) {
    stream.freed_in_epoch = stream.number != 0;
    if (stream.freed_in_epoch && !std::exchange(stream.is_in_freed, true)) {
      freed_.push(stream);
    }
  }
  // Notes that a block was put into the cache of `stream`. The caller holds the stream's lock.
  void note_cached(PoolStream& stream) { directory_.note_cached(stream); }
  // The streams passed to note_cached() since the last call of this function, in order of their numbers.
  // Valid until the next call.
  const std::vector<PoolStream*>& take_cached();

  // --- order -----------------------------------------------------------------------------------------------
  // The points that `requester` is ordered after.
  StreamKnowledge knowledge(const PoolStream& requester) const { return {requester.known, numbers_.done()}; }
  // Orders `requester` after `frontier`: by waits on the device or, if `requester` is the host, by waits of
  // the host. This and the other functions that wait throw CaptureConflict if a capture forbids the wait, and
  // what the backend throws.
  void make_ready(PoolStream& requester, const Frontier& frontier);
  // Whether all points of `frontier` have been seen to be done.
  bool is_done(const Frontier& frontier) const {
    return StreamKnowledge(numbers_.reached(), numbers_.done()).dominates(frontier);
  }
  // The points of `frontier` that are not done, and that `stream` is not ordered after.
  Frontier missing(const PoolStream& stream, const Frontier& frontier) const;
  // Blocks the host until `frontier` is done.
  void wait_until_done(const Frontier& frontier);
  // Blocks the host until all work of the device is done.
  void wait_until_all_is_done();
  // Blocks the host until all work that uses blocks is done, as far as captures allow. Blocks in use count
  // as freed now, by the stream that they were allocated for. Returns false if some of that work may still
  // run: on streams that are captured or gone, or on a block that was allocated for the host.
  bool wait_for_all_users();
  // Asks the backend which events have been reached, so that is_done() sees it.
  void poll_events() { events_.poll(); }
  // Records events so that poll_events() can detect when `frontier` is done.
  void record_events_for(const Frontier& frontier);

  // The points that are done, and those that `last_use` implies: every stream that is ordered after
  // `last_use` is ordered after them, too.
  class Covered final : public CoveredPoints {
   public:
    // `order` must outlive this object and must not change meanwhile.
    Covered(const StreamOrder& order, const Frontier& last_use);
    bool contain(Point point) const override;

   private:
    static constexpr std::size_t kClocks = 4;  // clocks of the first points of last_use; more points are rare

    const StreamClock& done_;
    std::array<StreamId, kClocks> streams_{};
    std::array<const StreamClock*, kClocks> clocks_{};
    std::size_t count_ = 0;
  };

  // --- figures ---------------------------------------------------------------------------------------------
  const OrderCounters& counters() const { return counters_; }
  std::size_t streams_tracked() const { return numbers_.given(); }
  // The figures of streams that have since been recycled.
  const StreamTally& recycled() const { return directory_.recycled(); }
  std::uint64_t recycled_reused() const { return directory_.recycled_reused(); }

 private:
  using StreamList = IntrusiveList<PoolStream, &PoolStream::of_retired>;

  // With fewer numbers in use, no stream is parked.
  static constexpr std::size_t kFewNumbers = 64;
  // With that many numbers in use, clocks cost more than a wait of the host.
  static constexpr std::size_t kManyNumbers = 4096;
  // How many numbers are visited, in turn, for each new stream. A stream is parked if it was not used between
  // two visits. While n streams have numbers, a number is visited once per n / 8 new streams. So at most
  // about n / 4 numbers belong to streams that are no longer used but not parked yet: a third more numbers
  // than needed.
  static constexpr int kVisitsPerStream = 8;

  // --- life
  PoolStream& add(StreamHandle handle, std::uint64_t id);
  // Prepares `stream`, which may be parked or settled, for use: it has a number again and caches blocks.
  void come_back(PoolStream& stream);
  void vanish(PoolStream& stream);
  void flush_if_possible(PoolStream& stream);
  void park_quiet_streams() noexcept;
  void park_if_quiet(PoolStream& stream);
  void unpark(PoolStream& stream);
  // Retires a stream that has ended or vanished.
  void retire(PoolStream& stream);
  // Settles a stream, all of whose work is done.
  void settle(PoolStream& stream);
  void settle_all(const StreamList& streams);
  // Whether an event represents all frees of the stream, or all of its work is done.
  bool is_covered(const PoolStream& stream) const;
  void limit_retired() noexcept;
  void limit_parked() noexcept;
  void limit_vanished();

  // --- order
  // An event that represents `point`; null if the point is done by now.
  StreamEvent* event_for(Point point);
  // The clock of everything that `point` implies; null if that is not known.
  const StreamClock* clock_of(Point point) const;
  void collect_missing(const PoolStream& requester, const Frontier& frontier);
  PoolStream* end_epochs_of_freed();
  template <class Visit>
  void visit_freed(PoolStream* freed, const Visit& visit);
  void retire_vanished();
  // Whether an event can be recorded on `stream`.
  bool can_record(const PoolStream& stream);
  // Whether a known stream is captured; asks the backend about each stream that exists.
  bool any_is_captured();
  // Throws CaptureConflict if a known stream is captured. Detects streams that have gone without notice.
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
  std::vector<Missing> missing_;  // of collect_missing(); reuses its memory
};

}  // namespace vdnn
