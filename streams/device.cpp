#include "vdnn/device.h"

#include <algorithm>
#include <new>
#include <utility>

#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

std::uint64_t hash(std::uint64_t before, std::uint64_t next) {
  return mix64((before + 0x9e3779b97f4a7c15) ^ next);
}

std::uint64_t hash(std::uint64_t before, std::span<const Access> accesses) {
  before = hash(before, accesses.size());
  for (const Access& access : accesses) {
    before = hash(hash(before, access.range.begin), access.range.bytes);
  }
  return before;
}

// What two steps of the same graph have in common: all but versions.
std::uint64_t hash_of(const Work& work) {
  return hash(hash(1, work.reads), work.writes);
}

std::uint64_t hash_of(const Copy& copy) {
  const std::uint64_t sides = hash(hash(2, {&copy.destination, 1}), {&copy.source, 1});
  return hash(sides, static_cast<std::uint64_t>(copy.direction));
}

std::uint64_t hash_of(AddressRange range, Protection protection) {
  return hash(hash(hash(3, range.begin), range.bytes), static_cast<std::uint64_t>(protection));
}

}  // namespace

DeviceCounters Device::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

AddressRange Device::reserve(std::uint64_t bytes) {
  check_not_capturing("reserving address space");
  return do_reserve(bytes);
}

void Device::unreserve(AddressRange reservation) {
  check_not_capturing("giving address space back");
  do_unreserve(reservation);
}

void Device::commit(AddressRange range) {
  check_not_capturing("a commit");
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
  check_not_capturing("a decommit");
  do_decommit(range);
  const std::lock_guard lock(mutex_);
  ++counters_.decommits;
  counters_.committed_bytes -= range.bytes;
}

AddressRange Device::allocate_pinned(std::uint64_t bytes) {
  check_not_capturing("page-locking");
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
  check_not_capturing("giving page-locked memory back");
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

bool Device::Recording::has(StreamId stream) const {
  return std::ranges::find(streams, stream) != streams.end();
}

bool Device::capturing() const {
  const std::lock_guard lock(mutex_);
  return recording_ && recording_->replayed == nullptr && recording_->thread == std::this_thread::get_id();
}

void Device::check_not_capturing(const char* what) const {
  if (capturing()) {
    throw InvalidArgument(properties_.name + ": " + what + " on the thread of a capture that has not ended");
  }
}

void Device::check_launched(const Frontier& frontier) const {
  for (const Point& point : frontier.points()) {
    if (recording_ && recording_->has(point)) {
      throw InvalidArgument(properties_.name + ": a wait for submission " + std::to_string(point.count) +
                            " of stream '" + timeline(point.stream).name +
                            "', which is inside a capture that has not ended");
    }
  }
}

const Frontier* Device::Timeline::behind_submission(Point own) const {
  const Frontier& found = behind[own.count % kRemembered];
  return found.count(own.stream) == own.count ? &found : nullptr;
}

void Device::Timeline::remember(Point own, Frontier what_is_behind) noexcept {
  behind[own.count % kRemembered] = std::move(what_is_behind);
}

Frontier Device::without_implied(const Frontier& missing) const {
  Frontier needed;
  for (const Point& point : missing.points()) {
    const bool implied = std::ranges::any_of(missing.points(), [&](const Point& later) {
      const Frontier* const behind = timeline(later.stream).behind_submission(later);
      return later != point && behind != nullptr && behind->dominates(point);
    });
    if (!implied) {
      needed.join(point);
    }
  }
  return needed;
}

void Device::wait(StreamId stream, const Frontier& frontier) {
  Frontier missing;
  Frontier needed;
  {
    const std::lock_guard lock(mutex_);
    check_submitted(frontier);
    Timeline& mine = timeline(stream);
    for (const Point& point : frontier.points()) {
      if (!mine.known.dominates(point)) {
        missing.join(point);
      }
    }
    check_recorded(stream, missing);
    needed = without_implied(missing);
  }
  for (const Point& point : needed.points()) {
    const std::uint64_t mark = mark_of_wait(point);
    if (needs_giving(stream, "a wait", mark)) {
      do_wait(stream, point);
      keep_mark(stream, mark);
    }
  }
  // Only now: a wait that the driver refused is not known to have happened.
  const std::lock_guard lock(mutex_);
  timeline(stream).known.join(missing);
}

// A stream inside knows everything from before, and what others are given meanwhile has no place in a graph.
void Device::check_recorded(StreamId stream, const Frontier& missing) const {
  if (!recording_ || !recording_->has(stream)) {
    check_launched(missing);
    return;
  }
  for (const Point& point : missing.points()) {
    if (!recording_->has(point)) {
      throw InvalidArgument(properties_.name + ": stream '" + timeline(stream).name +
                            "' is inside a capture and cannot wait for stream '" +
                            timeline(point.stream).name + "', which is not");
    }
  }
}

std::uint64_t Device::mark_of_wait(Point point) const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t begin = recording_ ? recording_->before.count(point.stream) : 0;
  return hash(hash(0, point.stream), point.count - begin);
}

bool Device::needs_giving(StreamId stream, std::string_view name, std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  if (!recording_ || !recording_->has(stream)) {
    return true;
  }
  if (recording_->replayed == nullptr) {
    // So that keeping the mark cannot fail any more.
    if (std::vector<std::uint64_t>& marks = recording_->trail; marks.size() == marks.capacity()) {
      marks.reserve(2 * marks.size() + 1);
    }
    return true;
  }
  const std::vector<std::uint64_t>& trail = recording_->replayed->trail_;
  const std::size_t position = recording_->position;
  if (position >= trail.size() || trail[position] != hash(mark, stream)) {
    throw InvalidArgument(properties_.name + ": '" + std::string(name) + "' on stream '" +
                          timeline(stream).name + "' is not what submission " + std::to_string(position) +
                          " of " + std::to_string(trail.size()) +
                          " was when the graph was captured, or not at the same addresses");
  }
  ++recording_->position;
  return false;
}

void Device::keep_mark(StreamId stream, std::uint64_t mark) {
  const std::lock_guard lock(mutex_);
  if (recording_ && recording_->has(stream)) {
    recording_->trail.push_back(hash(mark, stream));
  }
}

template <class Give>
Point Device::advance(StreamId stream, std::string_view name, std::uint64_t mark, const Give& give) {
  Point point{.stream = stream};
  Frontier before;
  Frontier behind;
  {
    const std::lock_guard lock(mutex_);
    Timeline& mine = timeline(stream);
    point.count = mine.known.count(stream) + 1;
    before = mine.known;
    // So that counting cannot fail any more.
    mine.known.reserve(before.points().size() + 1);
    behind = before;
    behind.join(point);
  }
  if (needs_giving(stream, name, mark)) {
    give(point, before);
    keep_mark(stream, mark);
  }
  const std::lock_guard lock(mutex_);
  Timeline& mine = timeline(stream);
  mine.known.join(point);
  mine.remember(point, std::move(behind));
  return point;
}

Point Device::submit(StreamId stream, const Work& work) {
  return advance(stream, work.name, hash_of(work),
                 [&](Point point, const Frontier& frontier) { do_submit(point, frontier, work); });
}

Point Device::copy(StreamId stream, const Copy& copy) {
  if (copy.destination.range.bytes != copy.source.range.bytes) {
    throw InvalidArgument(properties_.name + ": copy '" + std::string(copy.name) + "' from " +
                          format_size(copy.source.range.bytes) + " to " +
                          format_size(copy.destination.range.bytes));
  }
  return advance(stream, copy.name, hash_of(copy),
                 [&](Point point, const Frontier& frontier) { do_copy(point, frontier, copy); });
}

bool Device::reached(const Frontier& frontier) {
  check_not_capturing("asking what is reached");
  return do_reached(frontier);
}

void Device::synchronize(const Frontier& frontier) {
  check_not_capturing("a wait of the host");
  {
    const std::lock_guard lock(mutex_);
    check_submitted(frontier);
    check_launched(frontier);
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
  synchronize(everything());
}

void Device::recover() {
  check_not_capturing("recovering");
  const Frontier submitted = everything();
  {
    const std::lock_guard lock(mutex_);
    check_launched(submitted);
  }
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
  if (tracing() && !inside_recording(stream)) {
    do_mark(stream, counter, value);
  }
}

bool Device::inside_recording(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  return recording_ && recording_->has(stream);
}

Point Device::protect(StreamId stream, AddressRange range, Protection protection) {
  if (const std::string reason = why_not_protect(); !reason.empty()) {
    throw InvalidArgument(properties_.name + ": " + reason);
  }
  return advance(
      stream, "a protection", hash_of(range, protection),
      [&](Point point, const Frontier& frontier) { do_protect(point, frontier, range, protection); });
}

void Device::do_protect(Point, const Frontier&, AddressRange, Protection) {
  throw InvalidArgument(properties_.name + ": " + why_not_protect());
}

// --- graphs
// ----------------------------------------------------------------------------------------------------

std::unique_ptr<DeviceGraph> Device::capture(std::span<const StreamId> streams,
                                             const std::function<void()>& submit_all) {
  if (const std::string reason = why_not_capture(); !reason.empty()) {
    throw InvalidArgument(properties_.name + ": " + reason);
  }
  std::unique_ptr<DeviceGraph> graph;
  record_graph(streams, nullptr, [&] {
    do_begin_capture(streams);
    submit_all();
    graph = do_end_capture(streams, everything());
    graph->streams_ = recording_->streams;
    graph->trail_ = std::move(recording_->trail);
    launch(*graph);
  });
  return graph;
}

void Device::replay(const DeviceGraph& graph, const std::function<void()>& submit_all) {
  record_graph(graph.streams_, &graph, [&] {
    submit_all();
    if (recording_->position != graph.trail_.size()) {
      throw InvalidArgument(properties_.name + ": a replay ends after " +
                            std::to_string(recording_->position) + " submissions and waits of " +
                            std::to_string(graph.trail_.size()) + " that were captured");
    }
    launch(graph);
  });
}

template <class Record>
void Device::record_graph(std::span<const StreamId> streams, const DeviceGraph* replayed,
                          const Record& record) {
  begin_recording(streams, replayed);
  try {
    record();
  } catch (...) {
    abandon(std::current_exception());
    throw;
  }
}

void Device::begin_recording(std::span<const StreamId> streams, const DeviceGraph* replayed) {
  if (streams.empty()) {
    throw InvalidArgument(properties_.name + ": a graph of no streams");
  }
  {
    const std::lock_guard lock(mutex_);
    if (recording_) {
      throw InvalidArgument(properties_.name + ": a capture inside another one");
    }
  }
  Frontier before = everything();
  for (const StreamId stream : streams) {
    wait(stream, before);
  }
  const std::lock_guard lock(mutex_);
  recording_ = Recording{.streams = {streams.begin(), streams.end()},
                         .before = std::move(before),
                         .replayed = replayed,
                         .trail = {},
                         .thread = std::this_thread::get_id()};
}

// Afterwards each of the streams is ordered after everything that any of them was given.
void Device::launch(const DeviceGraph& graph) {
  const std::vector<StreamId>& streams = recording_->streams;
  std::vector<Frontier> after;
  {
    const std::lock_guard lock(mutex_);
    Frontier all;
    for (const StreamId stream : streams) {
      all.join(timeline(stream).known);
    }
    all.join({.stream = streams.front(), .count = all.count(streams.front()) + 1});
    after.assign(streams.size(), all);
  }
  do_launch(graph, streams, recording_->before, after.front());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    timeline(streams[i]).known = std::move(after[i]);
  }
  recording_.reset();
}

void Device::abandon(const std::exception_ptr& cause) noexcept {
  for (const StreamId stream : recording_->streams) {
    do_abandon(stream, recording_->before.count(stream), count(stream), cause);
  }
  const std::lock_guard lock(mutex_);
  // What never runs is behind nothing.
  for (const StreamId stream : recording_->streams) {
    timeline(stream).behind = {};
  }
  recording_.reset();
}

std::uint64_t Device::count(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  return timeline(stream).known.count(stream);
}

void Device::do_begin_capture(std::span<const StreamId>) {
  throw InvalidArgument(properties_.name + ": " + why_not_capture());
}

std::unique_ptr<DeviceGraph> Device::do_end_capture(std::span<const StreamId>, const Frontier&) {
  throw InvalidArgument(properties_.name + ": " + why_not_capture());
}

void Device::do_launch(const DeviceGraph&, std::span<const StreamId>, const Frontier&, const Frontier&) {
  throw InvalidArgument(properties_.name + ": " + why_not_capture());
}

void Device::do_abandon(StreamId, std::uint64_t, std::uint64_t, const std::exception_ptr&) noexcept {}

}  // namespace vdnn
