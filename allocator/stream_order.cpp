#include "allocator/stream_order.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();

}  // namespace

StreamOrder::StreamOrder(PoolBackend& backend, bool ends_are_told)
    : backend_(backend), ends_are_told_(ends_are_told) {
  PoolStream& host = streams_.emplace_back(StreamId{0}, nullptr, std::uint64_t{0}, false);
  host.known_by_handle = false;
}

StreamOrder::~StreamOrder() {
  for (PoolStream& stream : streams_) {
    while (!stream.events.empty()) {
      release_first(stream);
    }
  }
}

// --- who streams are ---------------------------------------------------------------------------------------

PoolStream* StreamOrder::known(StreamHandle handle) {
  const auto by_handle = by_handle_.find(handle);
  if (ends_are_told_ && by_handle != by_handle_.end() && !by_handle->second->of_thread) {
    return by_handle->second;
  }
  const auto by_id = by_id_.find(backend_.stream_id(handle));
  return by_id == by_id_.end() ? nullptr : by_id->second;
}

PoolStream& StreamOrder::at(StreamHandle handle) {
  PoolStream* stream = known(handle);
  if (stream == nullptr) {
    const auto before = by_handle_.find(handle);
    if (before != by_handle_.end() && !before->second->of_thread) {
      vanish(*before->second);
    }
    stream = &add(handle, backend_.stream_id(handle));
  }
  if (!stream->of_thread) {
    recent_[slot_of(handle)].store(stream, std::memory_order_release);
  }
  return *stream;
}

PoolStream& StreamOrder::add(StreamHandle handle, std::uint64_t id) {
  PoolStream& stream = take_number(handle, id, backend_.is_of_thread(handle));
  try {
    stream.known = Frontier(Point{.stream = stream.index, .count = kEver});
    by_id_.emplace(id, &stream);
    by_handle_[handle] = &stream;
  } catch (...) {
    forget_handle(stream);
    stream.ended = true;  // nothing depends on it
    throw;
  }
  stream.known_by_handle.store(true, std::memory_order_release);
  return stream;
}

PoolStream& StreamOrder::take_number(StreamHandle handle, std::uint64_t id, bool of_thread) {
  const auto unused =
      std::ranges::find_if(streams_, [this](PoolStream& stream) { return is_unused(stream); });
  if (unused == streams_.end()) {
    PoolStream& fresh = streams_.emplace_back(static_cast<StreamId>(streams_.size()), handle, id, of_thread);
    fresh.known_by_handle.store(false);
    return fresh;
  }
  const std::lock_guard lock(unused->mutex);
  retired_.absorb(std::exchange(unused->tally, {}));
  retired_reused_ += std::exchange(unused->reused_from_cache, 0);
  unused->handle = handle;
  unused->id = id;
  unused->of_thread = of_thread;
  unused->ended = false;
  return *unused;
}

bool StreamOrder::is_unused(PoolStream& stream) {
  const std::lock_guard lock(stream.mutex);
  return stream.ended && stream.tally.empty() && stream.readings == 0 && stream.cache.bytes() == 0 &&
         done_.dominates(Point{.stream = stream.index, .count = stream.epoch});
}

void StreamOrder::forget_handle(PoolStream& stream) {
  stream.known_by_handle.store(false, std::memory_order_release);
  by_id_.erase(stream.id);
  const auto found = by_handle_.find(stream.handle);
  if (found != by_handle_.end() && found->second == &stream) {
    by_handle_.erase(found);
  }
}

void StreamOrder::vanish(PoolStream& stream) {
  forget_handle(stream);
  stream.vanished = true;
}

bool StreamOrder::is_there(const PoolStream& stream) {
  if (ends_are_told_ && !stream.of_thread) {
    return true;
  }
  try {
    return backend_.stream_id(stream.handle) == stream.id;
  } catch (const InvalidArgument&) {
    return false;
  }
}

void StreamOrder::end(PoolStream& stream) {
  if (!end_if_unneeded(stream)) {
    record(stream, /*last=*/true);
  }
  forget_handle(stream);
}

bool StreamOrder::end_if_unneeded(PoolStream& stream) {
  const std::lock_guard lock(stream.mutex);
  stream.ended = !stream.freed_in_epoch && stream.tally.empty() && stream.readings == 0;
  return stream.ended;
}

// --- their order -------------------------------------------------------------------------------------------

const Frontier& StreamOrder::knowledge(PoolStream& requester) {
  requester.known.join(done_);
  return requester.known;
}

Frontier StreamOrder::missing(PoolStream& stream, const Frontier& frontier) {
  Frontier left;
  for (const Point& point : frontier.points()) {
    if (!done_.dominates(point) && !stream.known.dominates(point)) {
      left.join(point);
    }
  }
  return left;
}

void StreamOrder::make_ready(PoolStream& requester, const Frontier& behind) {
  if (&requester == &host()) {
    wait_until_done(behind);
    return;
  }
  const Frontier unknown = missing(requester, behind);
  if (unknown.empty()) {
    return;
  }
  refuse_capture(requester, "cannot wait for another stream's event that was not captured with it");
  for (const Point& point : most_telling_first(unknown)) {
    if (requester.known.dominates(point) || done_.dominates(point)) {
      continue;
    }
    if (const PoolStream::Event* const event = event_for(point)) {
      backend_.wait(requester.handle, event->handle);
      ++counters_.stream_waits;
      requester.known.join(event->after);
    }
  }
}

std::vector<Point> StreamOrder::most_telling_first(const Frontier& frontier) {
  std::vector<Point> points(frontier.points().begin(), frontier.points().end());
  const auto told = [&](const Point& point) {
    const PoolStream& stream = at_index(point.stream);
    const Frontier& after = stream.events.empty() ? stream.known : stream.events.back().after;
    return std::ranges::count_if(points, [&](const Point& other) { return after.dominates(other); });
  };
  std::vector<std::pair<std::ptrdiff_t, Point>> order;
  order.reserve(points.size());
  for (const Point& point : points) {
    order.emplace_back(-told(point), point);
  }
  std::ranges::stable_sort(order, {}, &std::pair<std::ptrdiff_t, Point>::first);
  std::ranges::transform(order, points.begin(), &std::pair<std::ptrdiff_t, Point>::second);
  return points;
}

void StreamOrder::wait_until_done(const Frontier& frontier) {
  for (const Point& point : frontier.points()) {
    if (done_.dominates(point)) {
      continue;
    }
    if (const PoolStream::Event* const event = event_for(point)) {
      backend_.synchronize(event->handle);
      ++counters_.host_waits;
      done_.join(event->after);
    }
  }
  release_done();
}

bool StreamOrder::is_captured(const PoolStream& stream) {
  return stream.known_by_handle && is_there(stream) && backend_.is_capturing(stream.handle);
}

void StreamOrder::wait_beside_captures() {
  for (PoolStream& stream : streams_) {
    if (stream.known_by_handle && is_there(stream) && !backend_.is_capturing(stream.handle)) {
      record(stream);
    }
    if (!stream.events.empty()) {
      backend_.synchronize(stream.events.back().handle);
      ++counters_.host_waits;
      done_.join(stream.events.back().after);
    }
  }
  release_done();
}

void StreamOrder::wait_until_all_is_done() {
  for (const PoolStream& stream : streams_) {
    if (is_captured(stream)) {
      throw CaptureConflict(backend_.properties().name + ": while stream " + std::to_string(stream.id) +
                            " is being captured, all streams cannot be waited for");
    }
  }
  Frontier everything;
  for (PoolStream& stream : streams_) {
    const std::lock_guard lock(stream.mutex);
    // What is freed from here on may have been submitted too late; not on a stream that is gone.
    const bool open = !stream.ended;
    stream.ended = stream.ended || stream.vanished;
    everything.join(Point{.stream = stream.index, .count = open ? ++stream.epoch : stream.epoch});
  }
  backend_.synchronize_all();
  ++counters_.device_waits;
  done_.join(everything);
  for (PoolStream& stream : streams_) {
    stream.vanished = false;
  }
  release_done();
}

void StreamOrder::look() {
  for (PoolStream& stream : streams_) {
    while (!stream.events.empty() && backend_.reached(stream.events.front().handle)) {
      done_.join(stream.events.front().after);
      release_first(stream);
    }
  }
}

Point StreamOrder::freed_on(PoolStream& stream) {
  Point point;
  {
    const std::lock_guard lock(stream.mutex);
    point = stream.next_point();
    stream.freed_in_epoch = true;
  }
  if (stream.of_thread && stream.known_by_handle && is_there(stream)) {
    record(stream);
  }
  return point;
}

void StreamOrder::mark(const Frontier& frontier) {
  for (const Point& point : frontier.points()) {
    PoolStream& stream = at_index(point.stream);
    const bool marked = !stream.events.empty() && stream.events.back().epoch >= point.count;
    const bool can_be = stream.known_by_handle && !stream.of_thread && !stream.vanished;
    if (!done_.dominates(point) && !marked && can_be && is_there(stream) &&
        !backend_.is_capturing(stream.handle)) {
      record(stream);
    }
  }
}

void StreamOrder::record(PoolStream& stream, bool last) {
  refuse_capture(stream, "cannot be waited for by streams that are not captured with it");
  PoolStream::Event event;
  for (const Point& point : stream.known.points()) {
    if (point.stream != stream.index) {
      event.after.join(point);
    }
  }
  event.after.reserve(event.after.points().size() + 1);
  stream.events.push_back(std::move(event));
  PoolStream::Event& fresh = stream.events.back();
  bool freed = false;
  {
    // First the epoch ends, then the event is recorded: what is freed in between belongs to the next, if
    // there is one.
    const std::lock_guard lock(stream.mutex);
    fresh.epoch = ++stream.epoch;
    freed = std::exchange(stream.freed_in_epoch, false);
    stream.ended = last;
  }
  fresh.after.join(Point{.stream = stream.index, .count = fresh.epoch});
  try {
    fresh.handle = backend_.record(stream.handle);
  } catch (...) {
    stream.events.pop_back();
    const std::lock_guard lock(stream.mutex);
    stream.freed_in_epoch = stream.freed_in_epoch || freed;
    stream.ended = false;
    throw;
  }
  ++counters_.events_recorded;
  if (stream.events.size() > kMaxEvents) {
    release_first(stream);
  }
}

const PoolStream::Event* StreamOrder::event_for(Point point) {
  PoolStream& stream = at_index(point.stream);
  const auto found = std::ranges::find_if(
      stream.events, [point](const PoolStream::Event& event) { return event.epoch >= point.count; });
  if (found != stream.events.end()) {
    return &*found;
  }
  if (stream.known_by_handle && !stream.of_thread) {
    if (is_there(stream)) {
      record(stream);
      return &stream.events.back();
    }
    vanish(stream);
  }
  wait_until_all_is_done();
  return nullptr;
}

void StreamOrder::refuse_capture(const PoolStream& stream, const char* what) const {
  if (backend_.is_capturing(stream.handle)) {
    throw CaptureConflict(backend_.properties().name + ": stream " + std::to_string(stream.id) +
                          " is being captured and " + what);
  }
}

void StreamOrder::release_done() {
  for (PoolStream& stream : streams_) {
    while (!stream.events.empty() &&
           done_.dominates(Point{.stream = stream.index, .count = stream.events.front().epoch})) {
      release_first(stream);
    }
  }
}

void StreamOrder::release_first(PoolStream& stream) noexcept {
  backend_.release(stream.events.front().handle);
  stream.events.pop_front();
}

}  // namespace vdnn
