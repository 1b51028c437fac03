#include "allocator/stream_events.h"

#include <mutex>
#include <string>
#include <utility>

#include "allocator/vector_room.h"

namespace vdnn {

StreamEvent& StreamEvents::new_event() {
  if (spare_events_.empty()) {
    make_room(spare_events_, events_.size() + 1);
    spare_events_.push_back(&events_.emplace_back());
  }
  StreamEvent& event = *spare_events_.back();
  spare_events_.pop_back();
  return event;
}

StreamEvent& StreamEvents::record(PoolStream& stream, bool is_last) {
  refuse_capture(stream, "cannot be waited for by streams that are not captured with it");
  StreamEvent& fresh = new_event();
  bool freed = false;
  const bool kept_cache = stream.keeps_cache;
  try {
    fresh.after = stream.known;
    {
      // The epoch ends first, then the event is recorded: a block freed in between belongs to the next epoch,
      // unless the stream ends with this event.
      const std::lock_guard lock(stream.mutex);
      fresh.epoch = ++stream.epoch;
      freed = std::exchange(stream.freed_in_epoch, false);
      stream.ended = is_last;
      stream.keeps_cache = kept_cache && !is_last;
    }
    fresh.after.set(stream.number, fresh.epoch);
    fresh.handle = backend_.record(stream.handle);
  } catch (...) {
    spare_events_.push_back(&fresh);
    const std::lock_guard lock(stream.mutex);
    stream.freed_in_epoch = stream.freed_in_epoch || freed;
    stream.ended = false;
    stream.keeps_cache = kept_cache;
    throw;
  }
  fresh.stream = &stream;
  fresh.number = next_event_++;
  fresh.is_held = true;
  stream.events.push_back(fresh);
  open_.push_back(fresh);
  held_.push_back(fresh);
  ++counters_.events_recorded;
  ++counters_.events_held;
  if (stream.events.size() > kMaxOfStream) {
    drop(*stream.events.front());
  }
  limit_open();
  if (held_.size() > kFewEvents) {
    poll_some();
  }
  return fresh;
}

StreamEvent* StreamEvents::existing(Point point) const {
  const PoolStream& stream = *numbers_.stream_of(point.stream);
  StreamEvent* event = stream.events.front();
  while (event != nullptr && event->epoch < point.count) {
    event = stream.events.next(*event);
  }
  return event;
}

void StreamEvents::refuse_capture(const PoolStream& stream, const char* what) const {
  if (backend_.is_capturing(stream.handle)) {
    throw CaptureConflict(backend_.properties().name + ": stream " + std::to_string(stream.id) +
                          " is being captured and " + what);
  }
}

// --- reached -----------------------------------------------------------------------------------------------

void StreamEvents::wait_for(StreamEvent& event) {
  if (event.is_held) {
    backend_.synchronize(event.handle);
    ++counters_.host_waits;
    release(event);
  }
  numbers_.join_done(event.after);
}

// If polling an event fails, the wait for that event reports the error.
void StreamEvents::poll_some() noexcept {
  try {
    for (int i = 0; i < kPollsPerEvent && !held_.empty(); ++i) {
      StreamEvent& event = *held_.front();
      if (!poll(event)) {
        held_.erase(event);
        held_.push_back(event);
      }
    }
  } catch (...) {
    return;
  }
}

bool StreamEvents::poll(StreamEvent& event) {
  const Point end{.stream = event.stream->number, .count = event.epoch};
  if (!numbers_.reached().dominates(end)) {
    if (!backend_.reached(event.handle)) {
      return false;
    }
    numbers_.join_reached(event.after);
  }
  release(event);
  return true;
}

void StreamEvents::poll() {
  ++polls_;
  for (StreamEvent *next = nullptr, *event = held_.front(); event != nullptr; event = next) {
    next = held_.next(*event);
    if (event->stream->busy_at_poll != polls_ && !poll(*event)) {
      event->stream->busy_at_poll = polls_;
    }
  }
}

// --- limits ------------------------------------------------------------------------------------------------

void StreamEvents::keep_last(PoolStream& stream) {
  while (stream.events.size() > 1) {
    drop(*stream.events.front());
  }
  open_.erase_if_there(*stream.events.back());
}

void StreamEvents::reopen_last(PoolStream& stream) {
  open_.push_back(*stream.events.back());
  limit_open();
}

// Drops the oldest events. If an event is the last one of a thread's default stream, the host waits for it
// first: no other thread could record a replacement.
void StreamEvents::limit_open() noexcept {
  while (open_.size() > kMaxOpen) {
    StreamEvent& oldest = *open_.front();
    if (oldest.stream->of_thread && oldest.stream->events.back() == &oldest) {
      try {
        wait_for(oldest);
      } catch (...) {
        // The wait has failed. A stream that needs a point of this event waits for the device.
      }
    }
    drop(oldest);
  }
}

void StreamEvents::release(StreamEvent& event) noexcept {
  if (std::exchange(event.is_held, false)) {
    held_.erase(event);
    backend_.release(event.handle);
    --counters_.events_held;
  }
}

void StreamEvents::release_all() noexcept {
  while (StreamEvent* const event = held_.front()) {
    release(*event);
  }
}

void StreamEvents::drop(StreamEvent& event) noexcept {
  release(event);
  open_.erase_if_there(event);
  event.stream->events.erase(event);
  spare_events_.push_back(&event);  // new_event() reserved space
}

void StreamEvents::drop_all(PoolStream& stream) noexcept {
  while (StreamEvent* const event = stream.events.front()) {
    drop(*event);
  }
}

}  // namespace vdnn
