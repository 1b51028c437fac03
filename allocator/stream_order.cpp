#include "allocator/stream_order.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kNoEventYet = std::numeric_limits<std::uint64_t>::max();

}  // namespace

StreamOrder::StreamOrder(PoolBackend& backend, bool ends_are_told, std::function<void(PoolStream&)> flush)
    : directory_(backend, ends_are_told),
      backend_(backend),
      flush_(std::move(flush)),
      numbers_(directory_.host()),
      events_(backend, numbers_, counters_) {}

// --- life --------------------------------------------------------------------------------------------------

PoolStream& StreamOrder::at(StreamHandle handle) {
  PoolStream* stream = known(handle);
  if (stream == nullptr) {
    if (PoolStream* const last = directory_.last_of(handle)) {
      vanish(*last);
    }
    limit_vanished();
    stream = &add(handle, backend_.stream_id(handle));
  }
  come_back(*stream);  // so that nothing settles the stream during the request
  if (!stream->of_thread) {
    directory_.remember(handle, *stream);
  }
  const std::lock_guard lock(stream->mutex);
  stream->used = true;
  return *stream;
}

PoolStream& StreamOrder::add(StreamHandle handle, std::uint64_t id) {
  if (streams_tracked() >= kFewNumbers) {
    park_quiet_streams();
  }
  PoolStream& stream = directory_.new_stream();
  directory_.identify(stream, handle, id);
  try {
    numbers_.give(stream);
    directory_.publish(stream);
  } catch (...) {
    directory_.forget_handle(stream);
    {
      const std::lock_guard lock(stream.mutex);
      stream.ended = true;  // nothing depends on it
    }
    settle(stream);
    throw;
  }
  return stream;
}

void StreamOrder::recycle(PoolStream& stream) {
  {
    const std::lock_guard lock(stream.mutex);
    if ((!stream.ended && !stream.known_by_handle) || stream.number != 0 || !stream.tally.empty() ||
        stream.readings != 0 || stream.cache.bytes() != 0 || stream.is_spare) {
      return;
    }
  }
  // A thread can add blocks to a stream without a number only under the pool's lock, which the caller holds.
  // If the stream's handle appears again, it counts as a new stream.
  directory_.recycle(stream);
}

// Handles a stream on which events can no longer be recorded. If no event is needed, the stream counts as
// ended, as if the pool had been told of its end.
void StreamOrder::vanish(PoolStream& stream) {
  if (stream.number == 0) {
    numbers_.give(stream);  // its blocks may have been used since it was settled
  }
  directory_.forget_handle(stream);
  {
    const std::lock_guard lock(stream.mutex);
    stream.keeps_cache = false;
    const bool is_idle =
        !stream.freed_in_epoch && stream.tally.empty() && stream.readings == 0 && stream.cache.bytes() == 0;
    stream.ended = is_idle && is_covered(stream);
    stream.vanished = !stream.ended;
  }
  if (stream.vanished) {
    flush_if_possible(stream);
  }
  retire(stream);
}

// Flushes the cache of the stream. If the heap has no memory for that, the rest is flushed later.
void StreamOrder::flush_if_possible(PoolStream& stream) {
  try {
    flush_(stream);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void StreamOrder::end(PoolStream& stream) {
  bool is_needed = false;
  {
    const std::lock_guard lock(stream.mutex);
    is_needed = stream.freed_in_epoch || !stream.tally.empty() || stream.readings != 0 || !is_covered(stream);
  }
  if (is_needed) {
    come_back(stream);
    events_.record(stream, /*is_last=*/true);
  } else {
    const std::lock_guard lock(stream.mutex);
    stream.ended = true;
    stream.keeps_cache = false;
  }
  directory_.forget_handle(stream);
  flush_if_possible(stream);
  retire(stream);
}

// Called only for new streams, so a program that makes no new streams parks none.
void StreamOrder::park_quiet_streams() noexcept {
  for (int i = 0; i < kVisitsPerStream; ++i) {
    PoolStream* const stream = numbers_.next_in_turn();
    ++counters_.streams_visited;
    if (stream != nullptr && !directory_.will_tell_of_end(*stream)) {
      park_if_quiet(*stream);
    }
  }
}

// A stream is quiet if it was not used since the last visit.
void StreamOrder::park_if_quiet(PoolStream& stream) {
  {
    const std::lock_guard lock(stream.mutex);
    if (std::exchange(stream.used, false) || !stream.keeps_cache || stream.freed_in_epoch ||
        stream.cache.bytes() != 0 || !is_covered(stream)) {
      return;
    }
    stream.keeps_cache = false;
  }
  if (numbers_.is_settled(stream)) {
    settle(stream);
    return;
  }
  events_.keep_last(stream);
  stream.is_parked = true;
  parked_.push_back(stream);
  limit_parked();
}

bool StreamOrder::is_covered(const PoolStream& stream) const {
  const StreamEvent* const last = stream.events.back();
  return numbers_.is_settled(stream) || (last != nullptr && last->epoch == stream.epoch);
}

void StreamOrder::retire(PoolStream& stream) {
  unpark(stream);
  if (stream.vanished) {
    vanished_.push_back(stream);
    return;
  }
  if (numbers_.is_settled(stream)) {
    settle(stream);
    return;
  }
  events_.keep_last(stream);
  retired_.push_back(stream);
  limit_retired();
}

void StreamOrder::unpark(PoolStream& stream) {
  if (std::exchange(stream.is_parked, false)) {
    parked_.erase(stream);
    events_.reopen_last(stream);
  }
}

void StreamOrder::come_back(PoolStream& stream) {
  if (stream.ended || stream.vanished || &stream == &host()) {
    return;
  }
  unpark(stream);
  if (stream.number == 0) {
    numbers_.give(stream);
  }
  const std::lock_guard lock(stream.mutex);
  stream.keeps_cache = true;
}

// If the wait fails, the call for the next stream tries again.
void StreamOrder::limit_retired() noexcept {
  try {
    while (retired_.size() > kMaxRetired) {
      PoolStream& oldest = *retired_.front();
      if (!numbers_.is_settled(oldest)) {
        events_.wait_for(*oldest.events.back());
      }
      settle(oldest);
      if (retired_.front() == &oldest) {
        return;
      }
    }
  } catch (...) {
    return;
  }
}

// If the wait fails, the call for the next stream tries again.
void StreamOrder::limit_vanished() {
  if (vanished_.size() <= kMaxVanished) {
    return;
  }
  try {
    wait_until_all_is_done();
  } catch (const CaptureConflict&) {
    if (vanished_.size() > kMaxVanishedInCapture) {
      throw;
    }
  } catch (...) {
    return;
  }
}

// The host waits for a stream that still exists only if it is a thread's default stream, or if at least
// kManyNumbers numbers are in use.
void StreamOrder::limit_parked() noexcept {
  try {
    while (parked_.size() > kMaxParked) {
      PoolStream& oldest = *parked_.front();
      if (streams_tracked() < kManyNumbers && !oldest.of_thread && directory_.exists(oldest)) {
        come_back(oldest);
        const std::lock_guard lock(oldest.mutex);
        oldest.used = true;
        continue;
      }
      if (!numbers_.is_settled(oldest)) {
        events_.wait_for(*oldest.events.back());
      }
      settle(oldest);
    }
  } catch (...) {
    return;
  }
}

void StreamOrder::settle(PoolStream& stream) {
  if (stream.cache.bytes() != 0) {
    try {
      flush_(stream);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  events_.drop_all(stream);
  (stream.is_parked ? parked_ : retired_).erase_if_there(stream);
  stream.is_parked = false;
  unknown_ = unknown_ == &stream ? nullptr : unknown_;
  numbers_.take_back(stream);
  recycle(stream);
}

// --- order -------------------------------------------------------------------------------------------------

Frontier StreamOrder::missing(const PoolStream& stream, const Frontier& frontier) const {
  Frontier left;
  for (const Point& point : frontier.points()) {
    if (!knowledge(stream).dominates(point)) {
      left.join(point);
    }
  }
  return left;
}

// Collects the missing points in the order of their events, the latest first. So each point precedes those
// that its event represents. Points without an event come first, in the order of stream numbers: the event
// that will be recorded for one of them cannot represent another.
void StreamOrder::collect_missing(const PoolStream& requester, const Frontier& frontier) {
  missing_.clear();
  for (const Point& point : frontier.points()) {
    if (!knowledge(requester).dominates(point)) {
      const StreamEvent* const event = events_.existing(point);
      missing_.push_back({.event = event == nullptr ? kNoEventYet : event->number, .point = point});
    }
  }
  std::ranges::sort(missing_, {},
                    [](const Missing& missing) { return std::tuple(~missing.event, missing.point.stream); });
}

void StreamOrder::make_ready(PoolStream& requester, const Frontier& frontier) {
  if (&requester == &host()) {
    wait_until_done(frontier);
    return;
  }
  collect_missing(requester, frontier);
  if (missing_.empty()) {
    return;
  }
  events_.refuse_capture(requester, "cannot wait for another stream's event that was not captured with it");
  requester.known.widen(numbers_.size());
  for (const Missing& each : missing_) {
    if (knowledge(requester).dominates(each.point)) {
      continue;
    }
    if (const StreamEvent* const event = event_for(each.point)) {
      if (event->is_held) {
        backend_.wait(requester.handle, event->handle);
        ++counters_.stream_waits;
      }
      requester.known.join(event->after);
    }
  }
}

void StreamOrder::wait_until_done(const Frontier& frontier) {
  collect_missing(host(), frontier);
  for (const Missing& each : missing_) {
    if (numbers_.done().dominates(each.point)) {
      continue;
    }
    if (StreamEvent* const event = event_for(each.point)) {
      events_.wait_for(*event);
    }
  }
}

bool StreamOrder::wait_for_all_users() {
  if (!any_is_captured()) {
    try {
      backend_.synchronize_all();
      return true;
    } catch (const CaptureConflict&) {  // NOLINT(bugprone-empty-catch): an unknown stream is captured
    }
  }
  return wait_beside_captures();
}

// If one stream refuses the wait, the others are still waited for.
bool StreamOrder::wait_beside_captures() noexcept {
  bool all = host().tally.empty();
  for (PoolStream& stream : directory_.streams()) {
    bool waited = false;
    for (int attempt = 0; attempt < 2 && !waited; ++attempt) {
      try {
        waited = wait_beside_captures(stream);
      } catch (...) {
        continue;  // the backend may accept the call the next time
      }
    }
    all = all && waited;
  }
  return all;
}

bool StreamOrder::wait_beside_captures(PoolStream& stream) {
  if (can_record(stream)) {
    come_back(stream);
    events_.record(stream);
    events_.wait_for(*stream.events.back());
    return true;
  }
  if (StreamEvent* const last = stream.events.back()) {
    events_.wait_for(*last);
  }
  const std::lock_guard lock(stream.mutex);
  const bool is_idle = !stream.freed_in_epoch && stream.tally.empty() && stream.readings == 0;
  return (is_idle || stream.ended) && numbers_.is_settled(stream);
}

bool StreamOrder::can_record(const PoolStream& stream) {
  return stream.known_by_handle && directory_.exists(stream) && !backend_.is_capturing(stream.handle);
}

bool StreamOrder::any_is_captured() {
  return std::ranges::any_of(directory_.streams(), [this](const PoolStream& stream) {
    return stream.known_by_handle && directory_.exists(stream) && backend_.is_capturing(stream.handle);
  });
}

// Any stream that exists may have been captured since the pool saw it, so each is asked. A stream that has
// gone is not asked again.
void StreamOrder::refuse_any_capture() {
  std::vector<PoolStream*> gone;
  const PoolStream* captured = nullptr;
  for (const auto& [id, stream] : directory_.known_by_id()) {
    ++counters_.streams_visited;
    if (!directory_.exists(*stream)) {
      if (!stream->of_thread) {
        gone.push_back(stream);
      }
    } else if (backend_.is_capturing(stream->handle)) {
      captured = stream;
      break;
    }
  }
  for (PoolStream* const stream : gone) {
    vanish(*stream);
  }
  if (captured != nullptr) {
    throw CaptureConflict(backend_.properties().name + ": while stream " + std::to_string(captured->id) +
                          " is being captured, the host cannot wait for all streams");
  }
}

// Ends the epochs of all streams that have freed since the last wait for the device, and returns these
// streams, chained. A block that is freed from here on belongs to the next epoch, which the wait does not
// cover, since uses of the block may be submitted after the wait has begun.
PoolStream* StreamOrder::end_epochs_of_freed() {
  PoolStream* const freed = freed_.take_all();
  for (PoolStream* stream = freed; stream != nullptr; stream = stream->next_freed) {
    const std::lock_guard lock(stream->mutex);
    stream->epoch += std::exchange(stream->freed_in_epoch, false) ? 1U : 0U;
    stream->epoch_at_wait = stream->epoch;
    ++counters_.streams_visited;
  }
  return freed;
}

// Calls visit(stream) for each stream of the chain, under its lock. Adds streams that have freed in their
// current epoch to freed_ again.
template <class Visit>
void StreamOrder::visit_freed(PoolStream* freed, const Visit& visit) {
  for (PoolStream *next = nullptr, *stream = freed; stream != nullptr; stream = next) {
    next = stream->next_freed;
    const std::lock_guard lock(stream->mutex);
    visit(*stream);
    stream->is_in_freed = stream->freed_in_epoch;
    if (stream->is_in_freed) {
      freed_.push(*stream);
    }
  }
}

// Points that are not done belong to streams that have freed since the last wait for the device, or that have
// ended or vanished or are parked.
void StreamOrder::wait_until_all_is_done() {
  refuse_any_capture();
  PoolStream* const freed = end_epochs_of_freed();
  try {
    backend_.synchronize_all();
  } catch (...) {
    visit_freed(freed,
                [](PoolStream& stream) { stream.freed_in_epoch = stream.number != 0 && !stream.ended; });
    throw;
  }
  ++counters_.device_waits;
  visit_freed(freed, [this](PoolStream& stream) {
    numbers_.raise_done({.stream = stream.number, .count = stream.number == 0 ? 0 : stream.epoch_at_wait});
  });
  events_.release_all();
  retire_vanished();
  settle_all(retired_);
  settle_all(parked_);
}

// All work is done, so the vanished streams need no event.
void StreamOrder::retire_vanished() {
  while (PoolStream* const stream = vanished_.front()) {
    vanished_.erase(*stream);
    retired_.push_back(*stream);
    stream->vanished = false;
    const std::lock_guard lock(stream->mutex);
    stream->ended = true;
  }
}

void StreamOrder::settle_all(const StreamList& streams) {
  for (PoolStream *next = nullptr, *stream = streams.front(); stream != nullptr; stream = next) {
    next = streams.next(*stream);
    ++counters_.streams_visited;
    numbers_.raise_done({.stream = stream->number, .count = stream->epoch});
    settle(*stream);
  }
}

Point StreamOrder::freed_on(PoolStream& stream) {
  come_back(stream);
  Point point;
  {
    const std::lock_guard lock(stream.mutex);
    point = stream.next_point();
    if (!stream.ended) {
      note_freed(stream);
    }
  }
  if (stream.of_thread && stream.known_by_handle && directory_.exists(stream)) {
    try {
      events_.record(stream);
    } catch (const CaptureConflict&) {
      // A stream that needs the block waits for the next event on this stream, or for the device.
    }
  }
  return point;
}

// Treats the block as freed on a stream that has gone without notice.
Point StreamOrder::freed_by_unknown() {
  if (unknown_ == nullptr) {
    PoolStream& stream = directory_.new_stream();
    try {
      numbers_.give(stream);
    } catch (...) {
      {
        const std::lock_guard lock(stream.mutex);
        stream.ended = true;
      }
      recycle(stream);
      throw;
    }
    stream.vanished = true;
    vanished_.push_back(stream);
    unknown_ = &stream;
  }
  const std::lock_guard lock(unknown_->mutex);
  unknown_->ended = false;
  unknown_->keeps_cache = false;
  note_freed(*unknown_);
  return unknown_->next_point();
}

void StreamOrder::record_events_for(const Frontier& frontier) {
  for (const Point& point : frontier.points()) {
    if (numbers_.done().dominates(point) || numbers_.reached().dominates(point) ||
        events_.existing(point) != nullptr) {
      continue;
    }
    PoolStream& stream = *numbers_.stream_of(point.stream);
    if (!stream.of_thread && can_record(stream)) {
      events_.record(stream);
    }
  }
}

StreamOrder::Covered::Covered(const StreamOrder& order, const Frontier& last_use)
    : done_(order.numbers_.done()) {
  for (const Point& point : last_use.points()) {
    const StreamClock* const clock = count_ < kClocks ? order.clock_of(point) : nullptr;
    if (clock != nullptr) {
      streams_[count_] = point.stream;
      clocks_[count_] = clock;
      ++count_;
    }
  }
}

bool StreamOrder::Covered::contain(Point point) const {
  if (done_.dominates(point)) {
    return true;
  }
  for (std::size_t i = 0; i < count_; ++i) {
    if (streams_[i] != point.stream && clocks_[i]->dominates(point)) {
      return true;
    }
  }
  return false;
}

const StreamClock* StreamOrder::clock_of(Point point) const {
  const PoolStream* const stream = numbers_.stream_of(point.stream);
  if (stream == nullptr || numbers_.done().dominates(point)) {
    return nullptr;
  }
  if (point.count > stream->epoch) {
    return &stream->known;  // the stream's next event will represent at least these points
  }
  // The event of the point may have been dropped. A later event represents more than the point.
  const StreamEvent* const event = events_.existing(point);
  return event != nullptr && event->epoch == point.count ? &event->after : nullptr;
}

StreamEvent* StreamOrder::event_for(Point point) {
  if (StreamEvent* const event = events_.existing(point)) {
    return event;
  }
  PoolStream& stream = *numbers_.stream_of(point.stream);
  if (stream.known_by_handle && !stream.of_thread) {
    if (directory_.exists(stream)) {
      return &events_.record(stream);
    }
    vanish(stream);
  }
  if (!numbers_.done().dominates(point)) {
    wait_until_all_is_done();
  }
  return nullptr;
}

const std::vector<PoolStream*>& StreamOrder::take_cached() {
  const std::vector<PoolStream*>& cached = directory_.take_cached();
  counters_.streams_visited += cached.size();
  return cached;
}

}  // namespace vdnn
