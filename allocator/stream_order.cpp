#include "allocator/stream_order.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();

// Afterwards `size` elements fit. As push_back() grows it, so that one after the other costs a constant each.
template <class Element>
void make_room(std::vector<Element>& elements, std::size_t size) {
  if (elements.capacity() < size) {
    elements.reserve(std::max(size, 2 * elements.capacity()));
  }
}

}  // namespace

StreamOrder::StreamOrder(PoolBackend& backend, bool ends_are_told, std::function<void(PoolStream&)> flush)
    : backend_(backend), ends_are_told_(ends_are_told), flush_(std::move(flush)) {
  host_.keeps_cache = true;
  numbers_.push_back({.stream = &host_, .count = 0});
  taken_cached_.reserve(1);
}

StreamOrder::~StreamOrder() {
  while (StreamEvent* const event = held_.front()) {
    let_go(*event);
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
    limit_vanished();
    stream = &add(handle, backend_.stream_id(handle));
  }
  come_back(*stream);  // so that nothing settles it while it is served
  if (!stream->of_thread) {
    recent_[slot_of(handle)].store(stream, std::memory_order_release);
  }
  const std::lock_guard lock(stream->mutex);
  stream->used = true;
  return *stream;
}

PoolStream& StreamOrder::add(StreamHandle handle, std::uint64_t id) {
  if (tracked() >= kFewNumbers) {
    look_for_quiet_streams();
  }
  PoolStream& stream = new_stream();
  {
    const std::lock_guard lock(stream.mutex);
    stream.handle.store(handle);
    stream.id.store(id);
    stream.ended = false;
  }
  stream.of_thread = backend_.is_of_thread(handle);
  try {
    take_number(stream);
    by_id_.emplace(id, &stream);
    by_handle_[handle] = &stream;
  } catch (...) {
    forget_handle(stream);
    {
      const std::lock_guard lock(stream.mutex);
      stream.ended = true;  // nothing depends on it
    }
    settle(stream);
    throw;
  }
  stream.known_by_handle.store(true, std::memory_order_release);
  return stream;
}

PoolStream& StreamOrder::new_stream() {
  if (spare_streams_.empty()) {
    make_room(spare_streams_, streams_.size() + 1);
    make_room(taken_cached_, streams_.size() + 2);
    streams_.emplace_back();
    return streams_.back();
  }
  PoolStream& stream = *spare_streams_.back();
  spare_streams_.pop_back();
  stream.is_spare = false;
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
  // Nothing enters a stream without a number but under the pool's lock. Where it turns up again it is a new
  // one.
  if (stream.known_by_handle) {
    forget_handle(stream);
  }
  const std::lock_guard lock(stream.mutex);
  stream.ended = true;
  recycled_.absorb(std::exchange(stream.tally, {}));
  recycled_reused_ += std::exchange(stream.reused_from_cache, 0);
  stream.known.clear();
  stream.vanished = false;
  stream.is_spare = true;
  spare_streams_.push_back(&stream);  // room: new_stream()
}

void StreamOrder::take_number(PoolStream& stream) {
  if (free_numbers_.empty()) {
    make_room(free_numbers_, numbers_.size() + 1);
    done_.widen(numbers_.size() + 1);
    reached_.widen(numbers_.size() + 1);
    numbers_.emplace_back();
    free_numbers_.push_back(static_cast<StreamId>(numbers_.size() - 1));
  }
  const StreamId number = free_numbers_.back();
  stream.known.widen(std::size_t{number} + 1);
  free_numbers_.pop_back();
  numbers_[number].stream = &stream;
  stream.known.set(number, kEver);
  const std::lock_guard lock(stream.mutex);
  stream.number = number;
  stream.epoch = numbers_[number].count;
  stream.keeps_cache = true;
}

void StreamOrder::leave_number(PoolStream& stream) {
  if (stream.number == 0) {
    return;
  }
  const std::lock_guard lock(stream.mutex);
  numbers_[stream.number] = {.stream = nullptr, .count = stream.epoch};
  stream.known.set(stream.number, stream.epoch);
  free_numbers_.push_back(stream.number);  // room: take_number()
  stream.number = 0;
  stream.keeps_cache = false;
  stream.freed_in_epoch = false;
}

void StreamOrder::forget_handle(PoolStream& stream) {
  {
    const std::lock_guard lock(stream.mutex);
    stream.known_by_handle.store(false, std::memory_order_release);
  }
  const auto by_id = by_id_.find(stream.id);
  if (by_id != by_id_.end() && by_id->second == &stream) {
    by_id_.erase(by_id);
  }
  const auto by_handle = by_handle_.find(stream.handle);
  if (by_handle != by_handle_.end() && by_handle->second == &stream) {
    by_handle_.erase(by_handle);
  }
}

// An event can no longer be recorded. Where none is needed, it is as if it had been told.
void StreamOrder::vanish(PoolStream& stream) {
  if (stream.number == 0) {
    take_number(stream);  // its blocks may have been used since it was settled
  }
  forget_handle(stream);
  {
    const std::lock_guard lock(stream.mutex);
    stream.keeps_cache = false;
    const bool is_idle =
        !stream.freed_in_epoch && stream.tally.empty() && stream.readings == 0 && stream.cache.bytes() == 0;
    stream.ended = is_idle && is_covered(stream);
    stream.vanished = !stream.ended;
  }
  if (stream.vanished) {
    try {
      flush_(stream);
    } catch (const std::bad_alloc&) {
      // The rest of the cache is flushed later.
    }
  }
  retire(stream);
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
  bool is_needed = false;
  {
    const std::lock_guard lock(stream.mutex);
    is_needed = stream.freed_in_epoch || !stream.tally.empty() || stream.readings != 0 || !is_covered(stream);
  }
  if (is_needed) {
    come_back(stream);
    record(stream, /*last=*/true);
  } else {
    const std::lock_guard lock(stream.mutex);
    stream.ended = true;
    stream.keeps_cache = false;
  }
  forget_handle(stream);
  try {
    flush_(stream);
  } catch (const std::bad_alloc&) {
    // The rest of the cache is flushed later.
  }
  retire(stream);
}

// --- numbers -----------------------------------------------------------------------------------------------

// Driven by streams that are new: among streams that stay, none loses its number.
void StreamOrder::look_for_quiet_streams() noexcept {
  for (int i = 0; i < kLooksAtStreams; ++i) {
    hand_ = hand_ + 1 < numbers_.size() ? hand_ + 1 : 1;
    ++counters_.streams_visited;
    PoolStream* const stream = numbers_[hand_].stream;
    const bool will_tell = stream != nullptr && ends_are_told_ && !stream->of_thread;
    if (stream != nullptr && !will_tell) {
      park_if_quiet(*stream);
    }
  }
}

// A stream that has not been used since the hand came by the last time.
void StreamOrder::park_if_quiet(PoolStream& stream) {
  {
    const std::lock_guard lock(stream.mutex);
    if (std::exchange(stream.used, false) || !stream.keeps_cache || stream.freed_in_epoch ||
        stream.cache.bytes() != 0 || !is_covered(stream)) {
      return;
    }
    stream.keeps_cache = false;
  }
  if (is_settled(stream)) {
    settle(stream);
    return;
  }
  keep_last_event(stream);
  stream.is_parked = true;
  parked_.push_back(stream);
  limit_parked();
}

void StreamOrder::keep_last_event(PoolStream& stream) {
  while (stream.events.size() > 1) {
    drop(*stream.events.front());
  }
  open_.erase_if_there(*stream.events.back());
}

bool StreamOrder::is_settled(const PoolStream& stream) const {
  return stream.number == 0 || done_.count(stream.number) >= stream.epoch;
}

bool StreamOrder::is_covered(const PoolStream& stream) const {
  const StreamEvent* const last = stream.events.back();
  return stream.number == 0 || done_.count(stream.number) >= stream.epoch ||
         (last != nullptr && last->epoch == stream.epoch);
}

void StreamOrder::retire(PoolStream& stream) {
  unpark(stream);
  if (stream.vanished) {
    vanished_.push_back(stream);
    return;
  }
  if (is_settled(stream)) {
    settle(stream);
    return;
  }
  keep_last_event(stream);
  retired_.push_back(stream);
  limit_retired();
}

void StreamOrder::unpark(PoolStream& stream) {
  if (std::exchange(stream.is_parked, false)) {
    parked_.erase(stream);
    open_.push_back(*stream.events.back());
    limit_open();
  }
}

void StreamOrder::come_back(PoolStream& stream) {
  if (stream.ended || stream.vanished || &stream == &host_) {
    return;
  }
  unpark(stream);
  if (stream.number == 0) {
    take_number(stream);
  }
  const std::lock_guard lock(stream.mutex);
  stream.keeps_cache = true;
}

// A wait that fails is tried again with the next stream.
void StreamOrder::limit_retired() noexcept {
  try {
    while (retired_.size() > kMaxRetired) {
      PoolStream& oldest = *retired_.front();
      if (!is_settled(oldest)) {
        wait_for(*oldest.events.back());
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

// A wait that fails is tried again with the next stream.
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

// The host does not wait for a stream that is still there, unless there are very many.
void StreamOrder::limit_parked() noexcept {
  try {
    while (parked_.size() > kMaxParked) {
      PoolStream& oldest = *parked_.front();
      if (tracked() < kManyNumbers && !oldest.of_thread && is_there(oldest)) {
        come_back(oldest);
        const std::lock_guard lock(oldest.mutex);
        oldest.used = true;
        continue;
      }
      if (!is_settled(oldest)) {
        wait_for(*oldest.events.back());
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
  drop_all(stream);
  (stream.is_parked ? parked_ : retired_).erase_if_there(stream);
  stream.is_parked = false;
  unknown_ = unknown_ == &stream ? nullptr : unknown_;
  leave_number(stream);
  recycle(stream);
}

// --- their order -------------------------------------------------------------------------------------------

Frontier StreamOrder::missing(const PoolStream& stream, const Frontier& frontier) const {
  Frontier left;
  for (const Point& point : frontier.points()) {
    if (!knowledge(stream).dominates(point)) {
      left.join(point);
    }
  }
  return left;
}

// In an order in which each comes before those that it stands for: that of their events, the latest first. Of
// points that have no event yet, none can stand for another.
void StreamOrder::collect_missing(const PoolStream& requester, const Frontier& behind) {
  missing_.clear();
  for (const Point& point : behind.points()) {
    if (!knowledge(requester).dominates(point)) {
      const StreamEvent* const event = existing_event(point);
      missing_.push_back({.event = event == nullptr ? kEver : event->number, .point = point});
    }
  }
  std::ranges::sort(missing_, {},
                    [](const Missing& missing) { return std::tuple(~missing.event, missing.point.stream); });
}

void StreamOrder::make_ready(PoolStream& requester, const Frontier& behind) {
  if (&requester == &host_) {
    wait_until_done(behind);
    return;
  }
  collect_missing(requester, behind);
  if (missing_.empty()) {
    return;
  }
  refuse_capture(requester, "cannot wait for another stream's event that was not captured with it");
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
  collect_missing(host_, frontier);
  for (const Missing& each : missing_) {
    if (done_.dominates(each.point)) {
      continue;
    }
    if (StreamEvent* const event = event_for(each.point)) {
      wait_for(*event);
    }
  }
}

bool StreamOrder::wait_beside_captures() noexcept {
  bool all = host_.tally.empty();
  for (PoolStream& stream : streams_) {
    bool waited = false;
    for (int attempt = 0; attempt < 2 && !waited; ++attempt) {
      try {
        waited = wait_beside_captures(stream);
      } catch (...) {
        continue;  // a call that was refused may not be the next time
      }
    }
    all = all && waited;
  }
  return all;
}

bool StreamOrder::wait_beside_captures(PoolStream& stream) {
  if (stream.known_by_handle && is_there(stream) && !backend_.is_capturing(stream.handle)) {
    come_back(stream);
    record(stream);
    wait_for(*stream.events.back());
    return true;
  }
  if (StreamEvent* const last = stream.events.back()) {
    wait_for(*last);
  }
  const std::lock_guard lock(stream.mutex);
  const bool is_idle = !stream.freed_in_epoch && stream.tally.empty() && stream.readings == 0;
  return (is_idle || stream.ended) && is_settled(stream);
}

bool StreamOrder::any_is_captured() {
  return std::ranges::any_of(streams_, [this](const PoolStream& stream) {
    return stream.known_by_handle && is_there(stream) && backend_.is_capturing(stream.handle);
  });
}

void StreamOrder::wait_for(StreamEvent& event) {
  if (event.is_held) {
    backend_.synchronize(event.handle);
    ++counters_.host_waits;
    let_go(event);
  }
  done_.join(event.after);
  reached_.join(event.after);
}

// Any stream that is there may have been captured since the pool saw it: each is asked. One that has gone is
// found out once.
void StreamOrder::refuse_any_capture() {
  std::vector<PoolStream*> gone;
  const PoolStream* captured = nullptr;
  for (const auto& [id, stream] : by_id_) {
    ++counters_.streams_visited;
    if (!is_there(*stream)) {
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
                          " is being captured, all streams cannot be waited for");
  }
}

// Streams that have points which are not done have freed since the device was waited for the last time, or
// have ended or vanished or are parked.
void StreamOrder::wait_until_all_is_done() {
  refuse_any_capture();
  PoolStream* const freed = freed_.take_all();
  for (PoolStream* stream = freed; stream != nullptr; stream = stream->next_freed) {
    const std::lock_guard lock(stream->mutex);
    // The uses of a block that is freed from here on may be submitted after the wait has begun.
    stream->epoch += std::exchange(stream->freed_in_epoch, false) ? 1U : 0U;
    stream->cut = stream->epoch;
    ++counters_.streams_visited;
  }
  const auto for_each_freed = [&](const auto& visit) {
    for (PoolStream *next = nullptr, *stream = freed; stream != nullptr; stream = next) {
      next = stream->next_freed;
      const std::lock_guard lock(stream->mutex);
      visit(*stream);
      stream->is_in_freed = stream->freed_in_epoch;
      if (stream->is_in_freed) {
        freed_.push(*stream);
      }
    }
  };
  try {
    backend_.synchronize_all();
  } catch (...) {
    for_each_freed([](PoolStream& stream) { stream.freed_in_epoch = stream.number != 0 && !stream.ended; });
    throw;
  }
  ++counters_.device_waits;
  const auto is_done = [this](Point point) {
    done_.raise(point);
    reached_.raise(point);
  };
  for_each_freed([&](PoolStream& stream) {
    is_done({.stream = stream.number, .count = stream.number == 0 ? 0 : stream.cut});
  });
  while (StreamEvent* const event = held_.front()) {
    let_go(*event);
  }
  while (PoolStream* const stream = vanished_.front()) {
    vanished_.erase(*stream);
    retired_.push_back(*stream);
    stream->vanished = false;
    const std::lock_guard lock(stream->mutex);
    stream->ended = true;
  }
  const auto settle_all = [&](const auto& streams) {
    for (PoolStream *next = nullptr, *stream = streams.front(); stream != nullptr; stream = next) {
      next = streams.next(*stream);
      ++counters_.streams_visited;
      is_done({.stream = stream->number, .count = stream->epoch});
      settle(*stream);
    }
  };
  settle_all(retired_);
  settle_all(parked_);
}

Point StreamOrder::freed_on(PoolStream& stream) {
  come_back(stream);
  Point point;
  {
    const std::lock_guard lock(stream.mutex);
    point = stream.next_point();
    if (!stream.ended) {
      has_freed(stream);
    }
  }
  if (stream.of_thread && stream.known_by_handle && is_there(stream)) {
    try {
      record(stream);
    } catch (const CaptureConflict&) {
      // A stream that needs the block waits for the next event here, or for the device.
    }
  }
  return point;
}

// As if freed on a stream that has gone without notice.
Point StreamOrder::freed_by_unknown() {
  if (unknown_ == nullptr) {
    PoolStream& stream = new_stream();
    try {
      take_number(stream);
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
  has_freed(*unknown_);
  return unknown_->next_point();
}

void StreamOrder::mark(const Frontier& frontier) {
  for (const Point& point : frontier.points()) {
    if (done_.dominates(point) || reached_.dominates(point) || existing_event(point) != nullptr) {
      continue;
    }
    PoolStream& stream = *numbers_[point.stream].stream;
    if (stream.known_by_handle && !stream.of_thread && is_there(stream) &&
        !backend_.is_capturing(stream.handle)) {
      record(stream);
    }
  }
}

StreamOrder::Covered::Covered(const StreamOrder& order, const Frontier& last_use) : done_(order.done_) {
  for (const Point& point : last_use.points()) {
    const StreamClock* const clock = count_ < kClocks ? order.stands_for(point) : nullptr;
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

const StreamClock* StreamOrder::stands_for(Point point) const {
  const PoolStream* const stream = numbers_[point.stream].stream;
  if (stream == nullptr || done_.dominates(point)) {
    return nullptr;
  }
  if (point.count > stream->epoch) {
    return &stream->known;  // at the least: its event is to come
  }
  // A stream may know the point by an event that was dropped. A later event stands for more than that.
  const StreamEvent* const event = existing_event(point);
  return event != nullptr && event->epoch == point.count ? &event->after : nullptr;
}

// --- events ------------------------------------------------------------------------------------------------

StreamEvent& StreamOrder::new_event() {
  if (spare_events_.empty()) {
    make_room(spare_events_, events_.size() + 1);
    spare_events_.push_back(&events_.emplace_back());
  }
  StreamEvent& event = *spare_events_.back();
  spare_events_.pop_back();
  return event;
}

StreamEvent& StreamOrder::record(PoolStream& stream, bool last) {
  refuse_capture(stream, "cannot be waited for by streams that are not captured with it");
  StreamEvent& fresh = new_event();
  bool freed = false;
  const bool kept_cache = stream.keeps_cache;
  try {
    fresh.after = stream.known;
    {
      // First the epoch ends, then the event is recorded: what is freed in between belongs to the next, if
      // there is one.
      const std::lock_guard lock(stream.mutex);
      fresh.epoch = ++stream.epoch;
      freed = std::exchange(stream.freed_in_epoch, false);
      stream.ended = last;
      stream.keeps_cache = kept_cache && !last;
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
  if (stream.events.size() > kMaxEventsOfStream) {
    drop(*stream.events.front());
  }
  limit_open();
  if (held_.size() > kFewEvents) {
    ask_some();
  }
  return fresh;
}

// Nobody else could record the last event of a thread's default stream again: the host makes sure of it.
void StreamOrder::limit_open() noexcept {
  while (open_.size() > kMaxOpenEvents) {
    StreamEvent& oldest = *open_.front();
    if (oldest.stream->of_thread && oldest.stream->events.back() == &oldest) {
      try {
        wait_for(oldest);
      } catch (...) {
        // A stream that needs the block waits for the device.
      }
    }
    drop(oldest);
  }
}

StreamEvent* StreamOrder::existing_event(Point point) const {
  const PoolStream& stream = *numbers_[point.stream].stream;
  StreamEvent* event = stream.events.front();
  while (event != nullptr && event->epoch < point.count) {
    event = stream.events.next(*event);
  }
  return event;
}

StreamEvent* StreamOrder::event_for(Point point) {
  if (StreamEvent* const event = existing_event(point)) {
    return event;
  }
  PoolStream& stream = *numbers_[point.stream].stream;
  if (stream.known_by_handle && !stream.of_thread) {
    if (is_there(stream)) {
      return &record(stream);
    }
    vanish(stream);
  }
  if (!done_.dominates(point)) {
    wait_until_all_is_done();
  }
  return nullptr;
}

// That an event cannot be asked for is told where it is waited for.
void StreamOrder::ask_some() noexcept {
  try {
    for (int i = 0; i < kLooksAtEvents && !held_.empty(); ++i) {
      StreamEvent& event = *held_.front();
      if (!ask(event)) {
        held_.erase(event);
        held_.push_back(event);
      }
    }
  } catch (...) {
    return;
  }
}

bool StreamOrder::ask(StreamEvent& event) {
  const Point end{.stream = event.stream->number, .count = event.epoch};
  if (!reached_.dominates(end)) {
    if (!backend_.reached(event.handle)) {
      return false;
    }
    reached_.join(event.after);
  }
  let_go(event);
  return true;
}

void StreamOrder::look() {
  ++looks_;
  for (StreamEvent *next = nullptr, *event = held_.front(); event != nullptr; event = next) {
    next = held_.next(*event);
    if (event->stream->last_look != looks_ && !ask(*event)) {
      event->stream->last_look = looks_;
    }
  }
}

void StreamOrder::let_go(StreamEvent& event) noexcept {
  if (std::exchange(event.is_held, false)) {
    held_.erase(event);
    backend_.release(event.handle);
    --counters_.events_held;
  }
}

void StreamOrder::drop(StreamEvent& event) noexcept {
  let_go(event);
  open_.erase_if_there(event);
  event.stream->events.erase(event);
  spare_events_.push_back(&event);  // room: new_event()
}

void StreamOrder::drop_all(PoolStream& stream) noexcept {
  while (StreamEvent* const event = stream.events.front()) {
    drop(*event);
  }
}

void StreamOrder::refuse_capture(const PoolStream& stream, const char* what) const {
  if (backend_.is_capturing(stream.handle)) {
    throw CaptureConflict(backend_.properties().name + ": stream " + std::to_string(stream.id) +
                          " is being captured and " + what);
  }
}

const std::vector<PoolStream*>& StreamOrder::take_cached() {
  taken_cached_.clear();
  for (PoolStream* stream = cached_.take_all(); stream != nullptr;) {
    taken_cached_.push_back(stream);  // room: new_stream()
    const std::lock_guard lock(stream->mutex);
    stream->is_in_cached = false;
    stream = stream->next_cached;
  }
  counters_.streams_visited += taken_cached_.size();
  std::ranges::sort(taken_cached_, {}, [](const PoolStream* stream) { return stream->number; });
  return taken_cached_;
}

}  // namespace vdnn
