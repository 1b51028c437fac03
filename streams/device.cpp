#include "vdnn/device.h"

#include <algorithm>
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

std::pair<Point, Frontier> Device::advance(StreamId stream) {
  const std::lock_guard lock(mutex_);
  Timeline& mine = timeline(stream);
  const Point point{.stream = stream, .count = mine.known.count(stream) + 1};
  std::pair<Point, Frontier> result{point, mine.known};
  mine.known.join(point);
  return result;
}

Point Device::submit(StreamId stream, const Work& work) {
  const auto [point, frontier] = advance(stream);
  do_submit(point, frontier, work);
  return point;
}

Point Device::copy(StreamId stream, const Copy& copy) {
  if (copy.destination.range.bytes != copy.source.range.bytes) {
    throw InvalidArgument(properties_.name + ": copy '" + std::string(copy.name) + "' from " +
                          format_size(copy.source.range.bytes) + " to " +
                          format_size(copy.destination.range.bytes));
  }
  const auto [point, frontier] = advance(stream);
  do_copy(point, frontier, copy);
  return point;
}

void Device::synchronize(const Frontier& frontier) {
  {
    const std::lock_guard lock(mutex_);
    check_submitted(frontier);
  }
  do_synchronize(frontier);
}

void Device::synchronize_all() {
  Frontier everything;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& timeline : timelines_) {
      everything.join(timeline->known);
    }
  }
  do_synchronize(everything);
}

std::vector<TraceEvent> Device::take_trace() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trace_, {});
}

void Device::record(TraceEvent event) {
  const std::lock_guard lock(mutex_);
  trace_.push_back(std::move(event));
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
  const auto [point, frontier] = advance(stream);
  do_protect(point, frontier, range, protection);
  return point;
}

void Device::do_protect(Point, const Frontier&, AddressRange, Protection) {
  throw InvalidArgument(properties_.name + ": " + why_not_protect());
}

}  // namespace vdnn
