#include "vdnn/device.h"

#include <algorithm>
#include <new>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

DeviceCounters Device::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Device::commit(AddressRange range) {
  {
    const std::lock_guard lock(mutex_);
    if (range.bytes > properties_.budget_bytes - counters_.committed_bytes) {
      const std::uint64_t left = properties_.budget_bytes - counters_.committed_bytes;
      throw OutOfMemory(properties_.name + ": commit of device memory", {.asked = range.bytes,
                                                                         .in_use = counters_.committed_bytes,
                                                                         .budget = properties_.budget_bytes,
                                                                         .would_have_fitted = left});
    }
    // Counted before the memory is there, so that two threads cannot both take the last granule.
    counters_.committed_bytes += range.bytes;
  }
  try {
    do_commit(range);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    counters_.committed_bytes -= range.bytes;
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++counters_.commits;
  counters_.peak_committed_bytes = std::max(counters_.peak_committed_bytes, counters_.committed_bytes);
}

void Device::decommit(AddressRange range) {
  do_decommit(range);
  const std::lock_guard lock(mutex_);
  ++counters_.decommits;
  counters_.committed_bytes -= range.bytes;
}

AddressRange Device::allocate_pinned(std::uint64_t bytes) {
  if (bytes == 0) {
    throw InvalidArgument(properties_.name + ": a block of page-locked memory without bytes");
  }
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t left = properties_.host_budget_bytes - counters_.pinned_bytes;
    if (bytes > left) {
      throw OutOfMemory(properties_.name + ": page-locked host memory",
                        {.asked = bytes,
                         .in_use = counters_.pinned_bytes,
                         .budget = properties_.host_budget_bytes,
                         .would_have_fitted = left});
    }
    counters_.pinned_bytes += bytes;
  }
  AddressRange range;
  try {
    range = do_allocate_pinned(bytes);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    counters_.pinned_bytes -= bytes;
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++counters_.pinned_allocations;
  counters_.peak_pinned_bytes = std::max(counters_.peak_pinned_bytes, counters_.pinned_bytes);
  return range;
}

void Device::free_pinned(AddressRange range) {
  do_free_pinned(range);
  const std::lock_guard lock(mutex_);
  ++counters_.pinned_frees;
  counters_.pinned_bytes -= range.bytes;
}

StreamId Device::create_stream(std::string name) {
  const std::lock_guard one_at_a_time(creation_mutex_);
  StreamId stream = 0;
  {
    const std::lock_guard lock(mutex_);
    stream = static_cast<StreamId>(timelines_.size());
    timelines_.push_back(std::make_unique<Timeline>(Timeline{.name = std::move(name), .known = {}}));
  }
  try {
    do_create_stream(stream, stream_name(stream));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    timelines_.pop_back();
    throw;
  }
  return stream;
}

Device::Timeline& Device::timeline(StreamId stream) {
  return const_cast<Timeline&>(std::as_const(*this).timeline(stream));
}

const Device::Timeline& Device::timeline(StreamId stream) const {
  if (stream >= timelines_.size()) {
    throw InvalidArgument(properties_.name + ": there is no stream " + std::to_string(stream));
  }
  return *timelines_[stream];
}

const std::string& Device::stream_name(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  return timeline(stream).name;
}

std::size_t Device::stream_count() const {
  const std::lock_guard lock(mutex_);
  return timelines_.size();
}

Frontier Device::frontier(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  return timeline(stream).known;
}

void Device::check_submitted(const Frontier& frontier) const {
  for (const Point& point : frontier.points()) {
    if (point.count > timeline(point.stream).known.count(point.stream)) {
      throw InvalidArgument(properties_.name + ": a wait for submission " + std::to_string(point.count) +
                            " of stream '" + timeline(point.stream).name + "', which has not been made");
    }
  }
}

void Device::wait(StreamId stream, const Frontier& frontier) {
  Frontier missing;
  {
    const std::lock_guard lock(mutex_);
    check_submitted(frontier);
    Timeline& mine = timeline(stream);
    for (const Point& point : frontier.points()) {
      if (!mine.known.dominates(point)) {
        missing.join(point);
      }
    }
  }
  if (missing.empty()) {
    return;
  }
  for (const Point& point : missing.points()) {
    do_wait(stream, point);
  }
  // Only now: a wait that the driver refused is not known to have happened.
  const std::lock_guard lock(mutex_);
  timeline(stream).known.join(missing);
}

template <class Give>
Point Device::advance(StreamId stream, const Give& give) {
  Point point{.stream = stream};
  Frontier before;
  {
    const std::lock_guard lock(mutex_);
    Timeline& mine = timeline(stream);
    point.count = mine.known.count(stream) + 1;
    before = mine.known;
    // So that counting cannot fail any more.
    mine.known.reserve(before.points().size() + 1);
  }
  give(point, before);
  const std::lock_guard lock(mutex_);
  timeline(stream).known.join(point);
  return point;
}

Point Device::submit(StreamId stream, const Work& work) {
  return advance(stream, [&](Point point, const Frontier& frontier) { do_submit(point, frontier, work); });
}

Point Device::copy(StreamId stream, const Copy& copy) {
  if (copy.destination.range.bytes != copy.source.range.bytes) {
    throw InvalidArgument(properties_.name + ": copy '" + std::string(copy.name) + "' from " +
                          format_size(copy.source.range.bytes) + " to " +
                          format_size(copy.destination.range.bytes));
  }
  return advance(stream, [&](Point point, const Frontier& frontier) { do_copy(point, frontier, copy); });
}

void Device::synchronize(const Frontier& frontier) {
  {
    const std::lock_guard lock(mutex_);
    check_submitted(frontier);
  }
  do_synchronize(frontier);
}

Frontier Device::everything() const {
  const std::lock_guard lock(mutex_);
  Frontier everything;
  for (const auto& timeline : timelines_) {
    everything.join(timeline->known);
  }
  return everything;
}

void Device::synchronize_all() {
  do_synchronize(everything());
}

void Device::recover() {
  const Frontier submitted = everything();
  try {
    do_synchronize(submitted);
  } catch (const DeviceError& error) {
    if (error.lost()) {
      throw;
    }
  } catch (...) {
    // What failed is what is to be forgotten.
  }
  do_recover();
}

std::vector<TraceEvent> Device::take_trace() {
  const std::lock_guard lock(mutex_);
  std::vector<TraceEvent> trace = std::exchange(trace_, {});
  if (std::exchange(trace_has_holes_, false)) {
    throw std::bad_alloc();
  }
  return trace;
}

void Device::record(TraceEvent::Kind kind, StreamId stream, std::string_view name, double begin_seconds,
                    double end_seconds, std::uint64_t value) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    trace_.push_back({.kind = kind,
                      .stream = stream,
                      .name = std::string(name),
                      .begin_seconds = begin_seconds,
                      .end_seconds = end_seconds,
                      .value = value});
  } catch (const std::bad_alloc&) {
    trace_has_holes_ = true;
  }
}

void Device::mark(StreamId stream, std::string_view counter, std::uint64_t value) {
  if (tracing()) {
    do_mark(stream, counter, value);
  }
}

Point Device::protect(StreamId stream, AddressRange range, Protection protection) {
  if (const std::string reason = why_not_protect(); !reason.empty()) {
    throw InvalidArgument(properties_.name + ": " + reason);
  }
  return advance(
      stream, [&](Point point, const Frontier& frontier) { do_protect(point, frontier, range, protection); });
}

void Device::do_protect(Point, const Frontier&, AddressRange, Protection) {
  throw InvalidArgument(properties_.name + ": " + why_not_protect());
}

}  // namespace vdnn
