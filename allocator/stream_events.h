#pragma once
// The events that a pool has recorded on streams: which points they represent, which have been reached, and
// how many are kept.
//
// An event of a stream represents all points that the stream is ordered after at that moment: a clock. Once
// an event has been reached, or the host knows so from another one, it is released to the backend. With each
// event that is recorded, two others are polled. At most StreamOrder::kMaxEvents exist. If there are more,
// the oldest is dropped, and a stream that needs it waits for the next one.
//
// Guarded by the pool's lock. The lock of a stream may be taken under it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "allocator/intrusive_list.h"
#include "allocator/pool_stream.h"
#include "allocator/stream_numbers.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

struct OrderCounters {
  std::uint64_t events_recorded = 0;
  std::uint64_t events_held = 0;  // now
  std::uint64_t stream_waits = 0;
  std::uint64_t host_waits = 0;
  std::uint64_t device_waits = 0;
  std::uint64_t streams_visited = 0;  // by calls that look at several
};

class StreamEvents {
 public:
  // Limits on all events but those that keep_last() has kept, and on the events of one stream.
  static constexpr std::size_t kMaxOpen = 640;
  static constexpr std::size_t kMaxOfStream = 16;

  // All arguments must outlive the events.
  StreamEvents(PoolBackend& backend, StreamNumbers& numbers, OrderCounters& counters)
      : backend_(backend), numbers_(numbers), counters_(counters) {}
  ~StreamEvents() { release_all(); }
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // An event for all that `stream` has freed in this epoch, which is its last one if `is_last`. Throws
  // CaptureConflict when the stream is being captured, or what the backend throws; then nothing changes.
  StreamEvent& record(PoolStream& stream, bool is_last = false);
  // The first event that represents `point`; null if there is none. The point's number must belong to a
  // stream.
  StreamEvent* existing(Point point) const;
  // Throws CaptureConflict when the stream is being captured. `what` completes "stream N is being captured
  // and".
  void refuse_capture(const PoolStream& stream, const char* what) const;

  // Blocks the host until the event has been reached.
  void wait_for(StreamEvent& event);
  // Asks the backend which events have been reached, of each stream up to the first that has not.
  void poll();

  // Drops all events of the stream but the last one, which is exempt from kMaxOpen from now on.
  void keep_last(PoolStream& stream);
  // Ends that exemption.
  void reopen_last(PoolStream& stream);
  void drop_all(PoolStream& stream) noexcept;
  // Called once all events have been reached.
  void release_all() noexcept;

 private:
  // As long as fewer are held, events are not polled.
  static constexpr std::size_t kFewEvents = 16;
  static constexpr int kPollsPerEvent = 2;

  StreamEvent& new_event();
  void poll_some() noexcept;
  // Whether the event has been reached.
  bool poll(StreamEvent& event);
  // Releases the event's handle to the backend.
  void release(StreamEvent& event) noexcept;
  void drop(StreamEvent& event) noexcept;
  void limit_open() noexcept;

  PoolBackend& backend_;
  StreamNumbers& numbers_;
  OrderCounters& counters_;
  std::deque<StreamEvent> events_;
  std::vector<StreamEvent*> spare_events_;  // has room for all
  // All but those that keep_last() has kept, the oldest first.
  IntrusiveList<StreamEvent, &StreamEvent::of_open> open_;
  // In the order in which they will be polled.
  IntrusiveList<StreamEvent, &StreamEvent::of_held> held_;
  std::uint64_t next_event_ = 1;
  std::uint64_t polls_ = 0;
};

}  // namespace vdnn
