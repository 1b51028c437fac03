#include "vdnn/device.h"

#include <algorithm>
#include <new>
#include <utility>

#include "streams/append_only_list.h"
#include "streams/graph_recording.h"
#include "streams/timeline.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

Device::Device(DeviceProperties properties)
    : properties_(std::move(properties)), timelines_(std::make_unique<AppendOnlyList<Timeline>>()) {}

Device::~Device() = default;

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
    // Counts the memory before it is committed, so that two threads cannot both take the last granule.
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
    throw InvalidArgument(properties_.name + ": a block of page-locked memory cannot have 0 bytes");
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
  const auto stream = static_cast<StreamId>(timelines_->size());
  timelines_->append([&](Timeline& added) { added.name = std::move(name); });
  try {
    do_create_stream(stream, stream_name(stream));
  } catch (...) {
    timelines_->remove_last();
    throw;
  }
  return stream;
}

Timeline& Device::timeline(StreamId stream) const {
  if (stream >= timelines_->size()) {
    throw InvalidArgument(properties_.name + ": there is no stream " + std::to_string(stream));
  }
  return (*timelines_)[stream];
}

const std::string& Device::stream_name(StreamId stream) const {
  return timeline(stream).name;
}

std::size_t Device::stream_count() const {
  return timelines_->size();
}

Frontier Device::frontier(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  return timeline(stream).known;
}

void Device::check_submitted(const Frontier& frontier) const {
  for (const Point& point : frontier.points()) {
    if (point.count > timeline(point.stream).known.count(point.stream)) {
      throw InvalidArgument(properties_.name + ": a wait for submission " + std::to_string(point.count) +
                            " of stream '" + timeline(point.stream).name +
                            "': it has not been submitted yet");
    }
  }
}

bool Device::capturing() const {
  const std::lock_guard lock(mutex_);
  return recording_ && recording_->captures_here();
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

Frontier Device::without_implied(const Frontier& missing) const {
  Frontier needed;
  for (const Point& point : missing.points()) {
    const bool implied = std::ranges::any_of(missing.points(), [&](const Point& later) {
      const Frontier* const end = timeline(later.stream).end_of(later);
      return later != point && end != nullptr && end->dominates(point);
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
    give(
        stream, "a wait", [&] { return recording_->signature_of_wait(point); },
        [&] { do_wait(stream, point); });
  }
  // Joins the frontier only now, since a wait that the driver refuses orders nothing.
  const std::lock_guard lock(mutex_);
  timeline(stream).known.join(missing);
}

// A stream in a capture is ordered after all work before the capture. Work submitted to other streams during
// the capture cannot be part of its graph, so the stream cannot wait for it.
void Device::check_recorded(StreamId stream, const Frontier& missing) const {
  if (!recording_ || !recording_->has(stream)) {
    check_launched(missing);
    return;
  }
  for (const Point& point : missing.points()) {
    if (!recording_->has(point)) {
      throw InvalidArgument(properties_.name + ": stream '" + timeline(stream).name +
                            "' is inside a capture and cannot wait for stream '" +
                            timeline(point.stream).name + "', which is not part of it");
    }
  }
}

bool Device::repeat(StreamId stream, std::string_view name, Signature signature) {
  const std::lock_guard lock(mutex_);
  if (recording_->is_capture()) {
    recording_->reserve_signature();
    return false;
  }
  if (!recording_->repeat(stream, signature)) {
    throw InvalidArgument(properties_.name + ": '" + std::string(name) + "' on stream '" +
                          timeline(stream).name + "' is not what submission " +
                          std::to_string(recording_->position()) + " of " +
                          std::to_string(recording_->length()) +
                          " was when the graph was captured, or not at the same addresses");
  }
  return true;
}

template <class Sign, class Give>
void Device::give(StreamId stream, std::string_view name, const Sign& sign, const Give& give_to_driver) {
  if (timeline(stream).recording == nullptr) {
    give_to_driver();
    return;
  }
  const Signature signature = sign();
  if (!repeat(stream, name, signature)) {
    give_to_driver();
    const std::lock_guard lock(mutex_);
    recording_->keep(stream, signature);
  }
}

template <class Sign, class Give>
Point Device::advance(StreamId stream, std::string_view name, const Sign& sign, const Give& give_to_driver) {
  Timeline& mine = timeline(stream);
  const Point point{.stream = stream, .count = mine.known.count(stream) + 1};
  // Everything that needs memory comes first, so that counting cannot fail after the driver has accepted the
  // submission.
  Frontier known = mine.known;
  known.join(point);
  Frontier end = known;
  give(stream, name, sign, [&] { give_to_driver(point, mine.known); });
  const std::lock_guard lock(mutex_);
  mine.known = std::move(known);
  mine.remember(point, std::move(end));
  return point;
}

Point Device::submit(StreamId stream, const Work& work) {
  return advance(
      stream, work.name, [&] { return signature_of(work); },
      [&](Point point, const Frontier& frontier) { do_submit(point, frontier, work); });
}

Point Device::copy(StreamId stream, const Copy& copy) {
  if (copy.destination.range.bytes != copy.source.range.bytes) {
    throw InvalidArgument(properties_.name + ": copy '" + std::string(copy.name) + "' from " +
                          format_size(copy.source.range.bytes) + " to " +
                          format_size(copy.destination.range.bytes));
  }
  return advance(
      stream, copy.name, [&] { return signature_of(copy); },
      [&](Point point, const Frontier& frontier) { do_copy(point, frontier, copy); });
}

bool Device::reached(const Frontier& frontier) {
  check_not_capturing("a query of reached work");
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
  for (std::size_t stream = 0; stream < timelines_->size(); ++stream) {
    everything.join((*timelines_)[stream].known);
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
    // The caller requested that exactly these failures be forgotten.
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

void Device::sample_counter(StreamId stream, std::string_view counter, std::uint64_t value) {
  if (tracing() && timeline(stream).recording == nullptr) {
    do_sample_counter(stream, counter, value);
  }
}

Point Device::protect(StreamId stream, AddressRange range, Protection protection) {
  if (const std::string reason = why_not_protect(); !reason.empty()) {
    throw InvalidArgument(properties_.name + ": " + reason);
  }
  return advance(
      stream, "a protection", [&] { return signature_of(range, protection); },
      [&](Point point, const Frontier& frontier) { do_protect(point, frontier, range, protection); });
}

void Device::do_protect(Point, const Frontier&, AddressRange, Protection) {
  throw InvalidArgument(properties_.name + ": " + why_not_protect());
}

// --- graphs ----------------------------------------------------------------------------------------------

std::unique_ptr<DeviceGraph> Device::capture(std::span<const StreamId> streams,
                                             const std::function<void()>& submit_all) {
  if (const std::string reason = why_not_capture(); !reason.empty()) {
    throw InvalidArgument(properties_.name + ": " + reason);
  }
  std::unique_ptr<DeviceGraph> graph;
  const auto begin = [&](Frontier before) {
    return std::make_unique<GraphRecording>(std::vector<StreamId>(streams.begin(), streams.end()),
                                            std::move(before));
  };
  record_graph(streams, begin, [&] {
    do_begin_capture(streams);
    submit_all();
    graph = do_end_capture(streams, everything());
    recording_->give_signatures_to(*graph);
    launch(*graph);
  });
  return graph;
}

void Device::replay(const DeviceGraph& graph, const std::function<void()>& submit_all) {
  const auto begin = [&](Frontier before) {
    return std::make_unique<GraphRecording>(graph, std::move(before));
  };
  record_graph(graph.streams_, begin, [&] {
    submit_all();
    if (recording_->position() != recording_->length()) {
      throw InvalidArgument(properties_.name + ": a replay ends after " +
                            std::to_string(recording_->position()) + " submissions and waits of " +
                            std::to_string(recording_->length()) + " that were captured");
    }
    launch(graph);
  });
}

template <class Begin, class Record>
void Device::record_graph(std::span<const StreamId> streams, const Begin& begin, const Record& record) {
  if (streams.empty()) {
    throw InvalidArgument(properties_.name + ": a graph needs at least one stream");
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
  set_recording(begin(std::move(before)));
  try {
    record();
  } catch (...) {
    abandon(std::current_exception());
    throw;
  }
}

void Device::set_recording(std::unique_ptr<GraphRecording> recording) {
  const std::lock_guard lock(mutex_);
  recording_ = std::move(recording);
  for (const StreamId stream : recording_->streams()) {
    timeline(stream).recording = recording_.get();
  }
}

void Device::end_recording() noexcept {
  for (const StreamId stream : recording_->streams()) {
    (*timelines_)[stream].recording = nullptr;
  }
  recording_.reset();
}

// After a launch, each of the graph's streams is ordered after all submissions to all of them.
void Device::launch(const DeviceGraph& graph) {
  const std::vector<StreamId>& streams = recording_->streams();
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
  do_launch(graph, streams, recording_->before(), after.front());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    timeline(streams[i]).known = std::move(after[i]);
  }
  end_recording();
}

void Device::abandon(const std::exception_ptr& cause) noexcept {
  for (const StreamId stream : recording_->streams()) {
    const std::uint64_t last = (*timelines_)[stream].known.count(stream);
    do_abandon(stream, recording_->before().count(stream), last, cause);
  }
  const std::lock_guard lock(mutex_);
  for (const StreamId stream : recording_->streams()) {
    // The abandoned work never runs, so a wait for it implies no wait for the work that it was to follow.
    (*timelines_)[stream].ends = {};
  }
  end_recording();
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
