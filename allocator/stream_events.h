#pragma once
// The events that a pool has recorded on streams: which points they represent, which have been reached, and
// how many are kept.
//
// An event represents all points that its stream is ordered after when the event is recorded: a clock. An
// event is released to the backend once it has been reached, or once another event implies that. With each
// event that is recorded, two others are polled. At most StreamOrder::kMaxEvents exist. Beyond that, the
// oldest event is dropped; a stream that needs it waits for the next event on the stream of the dropped one.
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
  std::uint64_t streams_visited = 0;  // by calls that look at several streams
};

class StreamEvents {
 public:
  // Limit on all events but those that keep_last() has kept.
  static constexpr std::size_t kMaxOpen = 640;
  // Limit on the events of one stream.
  static constexpr std::size_t kMaxOfStream = 16;

  // All arguments must outlive the events.
  StreamEvents(PoolBackend& backend, StreamNumbers& numbers, OrderCounters& counters)
      : backend_(backend), numbers_(numbers), counters_(counters) {}
  ~StreamEvents() { release_all(); }
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // Records an event for all that `stream` has freed in this epoch. `is_last`: the epoch is the stream's
  // last. Throws CaptureConflict when the stream is being captured, or what the backend throws; then nothing
  // changes.
  StreamEvent& record(PoolStream& stream, bool is_last = false);
  // The first event that represents `point`; null if there is none. The point's number must belong to a
  // stream.
  StreamEvent* existing(Point point) const;
  // Throws CaptureConflict when the stream is being captured. `what` completes "stream N is being captured
  // and".
  void refuse_capture(const PoolStream& stream, const char* what) const;

  // Blocks the host until the event has been reached.
  void wait_for(StreamEvent& event);
  // Polls the events of each stream in order, up to the first that has not been reached.
  void poll();

  // Drops all events of the stream but the last one, which is exempt from kMaxOpen from now on.
  void keep_last(PoolStream& stream);
  // Ends the exemption of the stream's last event.
  void reopen_last(PoolStream& stream);
  void drop_all(PoolStream& stream) noexcept;
  // Call it only after all events have been reached.
  void release_all() noexcept;

 private:
  // While fewer events are held, record() polls none.
  static constexpr std::size_t kFewEvents = 16;
  static constexpr int kPollsPerEvent = 2;

  StreamEvent& new_event();
  void poll_some() noexcept;
  // Polls an event. Returns whether it has been reached.
  bool poll(StreamEvent& event);
  // Releases the event's handle to the backend.
  void release(StreamEvent& event) noexcept;
  void drop(StreamEvent& event) noexcept;
  void limit_open() noexcept;

  PoolBackend& backend_;
  StreamNumbers& numbers_;
  OrderCounters& counters_;
  std::deque<StreamEvent> events_;
  std::vector<StreamEvent*> spare_events_;  // has capacity for all events
  // All events but those that keep_last() has kept, the oldest first.
  IntrusiveList<StreamEvent, &StreamEvent::of_open> open_;
  // The events that are held, in the order in which they will be polled.
  IntrusiveList<StreamEvent, &StreamEvent::of_held> held_;
  std::uint64_t next_event_ = 1;
  std::uint64_t polls_ = 0;
};

}  // namespace vdnn
