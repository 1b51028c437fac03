#include "streams/cuda/cuda_device.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "streams/cuda/cuda_context.h"
#include "streams/cuda/cuda_gpus.h"
#include "streams/cuda/cuda_memory.h"
#include "streams/cuda/cuda_pinned_blocks.h"
#include "streams/cuda/device_clock.h"
#include "streams/cuda/event_pool.h"
#include "streams/cuda/host_waits.h"
#include "streams/failures.h"
#include "streams/host_memory.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

std::string name_of(const CudaDeviceOptions& options) {
  return "cuda:" + std::to_string(options.ordinal);
}

// The granule of GPUs without virtual memory management, which report none: the usual granule of other GPUs.
constexpr std::uint64_t kPlainGranule = std::uint64_t{2} << 20;

std::uint64_t granule_of(CudaContext& context) {
  const CudaDeviceInfo info = info_of(context, context.ordinal());
  return info.virtual_memory ? granule_of(context, memory_kind_of(context, info)) : kPlainGranule;
}

// Library modules need tens of megabytes each, whatever the card's size. Page tables and the memory of
// kernels for larger batches grow with the card.
constexpr std::uint64_t kLeastReserve = std::uint64_t{256} << 20;
constexpr std::uint64_t kPartsOfReserve = 50;  // 2 % of the free memory

struct ProcessBudget {
  std::uint64_t bytes = 0;    // the share of the process, context and libraries included
  std::uint64_t reserve = 0;  // free bytes outside the budget
};

ProcessBudget default_budget(const CudaDeviceOptions& options, std::uint64_t available) {
  const std::uint64_t wanted =
      options.reserve_bytes.value_or(std::max(kLeastReserve, available / kPartsOfReserve));
  const std::uint64_t reserve = std::min(wanted, available);
  return {.bytes = available - reserve, .reserve = reserve};
}

ProcessBudget process_budget(const CudaContext& context, const CudaDeviceOptions& options,
                             const CardMemory& memory, std::uint64_t library) {
  const std::uint64_t available = memory.free + library;
  if (options.budget_bytes == 0) {
    return default_budget(options, available);
  }
  const std::uint64_t least = options.least_budget_bytes.value_or(options.budget_bytes);
  if (least > available) {
    throw OutOfMemory(context.owner() + ": a budget of more than the GPU has free",
                      {.asked = least,
                       .in_use = memory.total - std::min(memory.total, available),
                       .budget = memory.total,
                       .would_have_fitted = available});
  }
  return {.bytes = std::min(options.budget_bytes, available)};
}

void require_consistent(const CudaContext& context, const CudaDeviceOptions& options) {
  if (options.least_budget_bytes.value_or(0) > options.budget_bytes) {
    throw InvalidArgument(context.owner() + ": a least budget of " +
                          format_size(*options.least_budget_bytes) + " is more than the budget of " +
                          format_size(options.budget_bytes));
  }
  if (options.budget_bytes != 0 && options.reserve_bytes) {
    throw InvalidArgument(context.owner() +
                          ": a reserve is kept back from free memory, not from a budget of " +
                          format_size(options.budget_bytes));
  }
}

DeviceProperties properties_of(CudaContext& context, const CudaDeviceOptions& options) {
  require_gpu(context);
  require_consistent(context, options);
  require_peers(context, options.peers);
  const std::uint64_t library =
      options.library_bytes ? *options.library_bytes : bytes_taken_by(context, [&] { context.enter(); });
  const CudaContext::Scope scope = context.enter();
  const std::uint64_t granule = granule_of(context);
  const CardMemory memory = memory_of(context);
  const ProcessBudget budget = process_budget(context, options, memory, library);
  if (const std::uint64_t least = checked_add(library, granule); budget.bytes < least) {
    const std::string what =
        context.owner() + ": a budget of " + format_size(budget.bytes) + " is less than one granule of " +
        format_size(granule) + " beside " + format_size(library) + " of context and libraries" +
        (budget.reserve == 0
             ? ""
             : ", with " + format_size(budget.reserve) + " kept back for what they take later");
    if (options.budget_bytes != 0 && budget.bytes == options.budget_bytes) {
      throw InvalidArgument(what);
    }
    // The caller did not choose this budget: it is the memory that other processes have left.
    throw OutOfMemory(what, {.asked = least,
                             .in_use = memory.total - memory.free,
                             .budget = memory.total,
                             .would_have_fitted = budget.bytes});
  }
  return {.name = context.owner(),
          .memory_bytes = memory.total,
          .budget_bytes = (budget.bytes - library) / granule * granule,
          .host_budget_bytes =
              options.host_budget_bytes != 0 ? options.host_budget_bytes : host_memory_bytes() / 2,
          .granule_bytes = granule,
          .alignment_bytes = kCudaBlockAlignment,
          .library_bytes = library,
          .reserve_bytes = budget.reserve,
          .touches_memory = true};
}

// While the object exists, profilers show its name for all submitted work.
class NamedRange {
 public:
  NamedRange(CudaApi& api, std::string_view name) : api_(api) { api_.range_push(std::string(name)); }
  ~NamedRange() { api_.range_pop(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  CudaApi& api_;
};

// An event that returns to its pool after it has been reached, once no thread is about to wait for it or to
// query it.
using SharedEvent = std::shared_ptr<void>;

// The end of a submission, or of all submissions of a graph launch. It is kept until the host knows that it
// has been reached.
struct Ending {
  std::uint64_t first = 0;
  std::uint64_t count = 0;  // number of the last submission
  // Null if recording failed. The stream then accepts no more work, so a wait for this ending is a wait for
  // all work of the stream.
  SharedEvent event;
};

// An entry of the trace, added once its events are reached.
struct Timing {
  TraceEvent::Kind kind = TraceEvent::Kind::kWork;
  std::string name;
  EventPool::Event begin;
  EventPool::Event end;  // null: the entry has no duration
  std::uint64_t value = 0;

  CudaEvent last() const { return end ? end.get() : begin.get(); }
};

struct Stream {
  CudaStream native = nullptr;
  std::uint64_t submitted = 0;  // submissions of a capture count once its graph is launched
  bool captured = false;
  std::deque<Ending> endings;  // ascending; endings beyond `submitted` cannot be queried yet
  std::deque<Timing> timings;  // in stream order
  StreamTimes times;
};

class CudaGraphLaunch final : public DeviceGraph {
 public:
  // Takes ownership of `captured`.
  CudaGraphLaunch(CudaContext& context, CudaGraph captured) : context_(context) {
    const CudaStatus made = context_.api().graph_instantiate(exec_, captured);
    context_.forget(context_.api().graph_destroy(captured));
    context_.check_memory(made, "cudaGraphInstantiate", [this] {
      const CardMemory memory = memory_of(context_);
      return MemoryShortage{
          .in_use = memory.total - memory.free, .budget = memory.total, .would_have_fitted = memory.free};
    });
  }
  ~CudaGraphLaunch() override {
    const CudaContext::Scope scope = context_.enter_anyway();
    context_.forget(context_.api().graph_exec_destroy(exec_));
  }

  CudaExec exec() const { return exec_; }

 private:
  CudaContext& context_;
  CudaExec exec_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<CudaContext> context, const CudaDeviceOptions& options)
      : Device(properties_of(*context, options)),
        context_(std::move(context)),
        info_(info_of(*context_, context_->ordinal())),
        memory_(*context_, properties().granule_bytes, info_, options.peers),
        pinned_(*context_, properties().host_budget_bytes, info_.host_node),
        events_(*context_, {}),
        host_waits_(*context_),
        clock_(*context_) {}
  ~CudaDevice() override;

  double now_seconds() const override { return clock_.host_seconds(); }
  StreamTimes times(StreamId stream) const override;
  std::string why_not_timed() const override {
    return tracing() ? "" : "timed events cost time: cuda records them only while tracing";
  }
  std::string why_not_capture() const override { return ""; }

 protected:
  AddressRange do_reserve(std::uint64_t bytes) override { return memory_.reserve(bytes); }
  void do_unreserve(AddressRange reservation) override { memory_.unreserve(reservation); }
  void do_commit(AddressRange range) override { memory_.commit(range); }
  void do_decommit(AddressRange range) override { memory_.decommit(range); }
  AddressRange do_allocate_pinned(std::uint64_t bytes) override { return pinned_.take(bytes); }
  void do_free_pinned(AddressRange block) override { pinned_.give_back(block); }
  void do_create_stream(StreamId stream, const std::string& name) override;
  void do_wait(StreamId stream, Point point) override;
  void do_submit(Point point, const Frontier& frontier, const Work& work) override;
  void do_copy(Point point, const Frontier& frontier, const Copy& copy) override;
  void do_synchronize(const Frontier& frontier) override;
  bool do_reached(const Frontier& frontier) override;
  void do_recover() override { failures_.clear(); }
  void do_sample_counter(StreamId stream, std::string_view counter, std::uint64_t value) override;
  void do_begin_capture(std::span<const StreamId> streams) override;
  std::unique_ptr<DeviceGraph> do_end_capture(std::span<const StreamId> streams,
                                              const Frontier& frontier) override;
  void do_launch(const DeviceGraph& graph, std::span<const StreamId> streams, const Frontier& before,
                 const Frontier& after) override;
  void do_abandon(StreamId stream, std::uint64_t before, std::uint64_t last,
                  const std::exception_ptr& cause) noexcept override;

 private:
  Stream& stream(StreamId stream) const;
  // The ending of `point`, or nothing if the host knows that `point` has been reached.
  std::optional<Ending> find_ending(Point point) const;
  // Whether `ending`, which is on `stream`, has been reached.
  bool is_past(const Stream& stream, const Ending& ending);
  void wait_on_host(const Stream& stream, const Ending& ending);
  void check_copy(const Copy& copy) const;

  // Calls give(native stream), which submits something to the stream; `point` is the end of this submission.
  // If give() throws, nothing counts as submitted.
  template <class Give>
  void append(Point point, std::string_view name, std::uint64_t copied_bytes, const Give& give);
  // Call it in an exception handler if the last submission was passed to CUDA but its event was not
  // recorded.
  void give_up_recording(Stream& stream, Point point) noexcept;
  // Makes `waiting` wait for all work submitted to `awaited` so far.
  void join(const Stream& waiting, const Stream& awaited);
  // Prepares an ending for the submissions after `before` up to `last`, which a graph launch will complete.
  void expect(StreamId stream, std::uint64_t before, std::uint64_t last);
  // Drops the endings of submissions after `before`. The caller holds the lock.
  static void drop_endings(Stream& stream, std::uint64_t before);
  // Records the endings of a graph that has just been launched.
  void record_endings(std::span<const StreamId> streams, const Frontier& before, const Frontier& after);

  // While tracing, start() and stop() time the submissions to the stream between the two calls.
  std::optional<Timing> start(Stream& stream, TraceEvent::Kind kind, std::string_view name);
  void stop(Stream& stream, std::optional<Timing> timing);
  void keep(Stream& stream, Timing timing);

  // Returns reached events to their pools and records the times of finished work.
  void settle(const Frontier& reached);
  void settle_endings(Stream& stream, std::uint64_t reached);
  void settle_timings(StreamId id, Stream& stream);
  void tell(StreamId id, Stream& stream, const Timing& timing);

  std::unique_ptr<CudaContext> context_;
  const CudaDeviceInfo info_;
  CudaMemory memory_;
  CudaPinnedBlocks pinned_;
  EventPool events_;
  HostWaits host_waits_;
  DeviceClock clock_;
  Failures failures_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<Stream>> streams_;
  std::size_t untold_ = 0;          // timings that are not in the trace yet
  CudaStream capturing_ = nullptr;  // the stream on which the current capture began; null: none
};

CudaDevice::~CudaDevice() {
  const CudaContext::Scope scope = context_->enter_anyway();
  CudaApi& api = context_->api();
  for (const auto& each : streams_) {
    context_->forget(api.stream_synchronize(each->native));
  }
  for (const auto& each : streams_) {
    context_->forget(api.stream_destroy(each->native));
  }
  streams_.clear();
}

// --- streams -----------------------------------------------------------------------------------------------

Stream& CudaDevice::stream(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  if (stream >= streams_.size()) {
    throw InvalidArgument(properties().name + ": there is no stream " + std::to_string(stream));
  }
  return *streams_[stream];
}

void CudaDevice::do_create_stream(StreamId, const std::string&) {
  const CudaContext::Scope scope = context_->enter();
  failures_.add_stream();
  auto made = std::make_unique<Stream>();
  const std::lock_guard lock(mutex_);
  streams_.reserve(streams_.size() + 1);
  context_->check(context_->api().stream_create(made->native), "cudaStreamCreateWithFlags");
  streams_.push_back(std::move(made));
}

std::optional<Ending> CudaDevice::find_ending(Point point) const {
  const Stream& other = stream(point.stream);
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::lower_bound(other.endings, point.count, {}, &Ending::count);
  return it == other.endings.end() || it->first > point.count ? std::nullopt : std::optional(*it);
}

bool CudaDevice::is_past(const Stream& stream, const Ending& ending) {
  CudaApi& api = context_->api();
  return ending.event ? context_->is_ready(api.event_query(ending.event.get()), "cudaEventQuery")
                      : context_->is_ready(api.stream_query(stream.native), "cudaStreamQuery");
}

void CudaDevice::wait_on_host(const Stream& stream, const Ending& ending) {
  if (ending.event) {
    host_waits_.wait(ending.event.get());
  } else {
    context_->check(context_->api().stream_synchronize(stream.native), "cudaStreamSynchronize");
  }
}

void CudaDevice::do_wait(StreamId waiting, Point point) {
  const CudaContext::Scope scope = context_->enter();
  Stream& mine = stream(waiting);
  const std::optional<Ending> ending = find_ending(point);
  if (!ending) {
    return;
  }
  std::optional<Timing> timing;
  if (tracing()) {
    timing = start(mine, TraceEvent::Kind::kWait, "wait for " + stream_name(point.stream));
  }
  if (ending->event) {
    context_->check(context_->api().stream_wait_event(mine.native, ending->event.get()),
                    "cudaStreamWaitEvent");
  } else {
    join(mine, stream(point.stream));
  }
  stop(mine, std::move(timing));
}

template <class Give>
void CudaDevice::append(Point point, std::string_view name, std::uint64_t copied_bytes, const Give& give) {
  const CudaContext::Scope scope = context_->enter();
  if (const std::exception_ptr failure = failures_.of(point.stream)) {
    std::rethrow_exception(failure);
  }
  Stream& mine = stream(point.stream);
  const SharedEvent ending = events_.take();
  std::optional<Timing> timing = start(mine, TraceEvent::Kind::kWork, name);
  if (timing) {
    timing->value = copied_bytes;
  }
  {
    const std::lock_guard lock(mutex_);
    mine.endings.push_back({.first = point.count, .count = point.count, .event = ending});
  }
  try {
    const NamedRange range(context_->api(), name);
    give(mine.native);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    mine.endings.pop_back();
    throw;
  }
  try {
    stop(mine, std::move(timing));
    context_->check(context_->api().event_record(ending.get(), mine.native), "cudaEventRecord");
  } catch (...) {
    give_up_recording(mine, point);
  }
  const std::lock_guard lock(mutex_);
  if (!mine.captured) {
    mine.submitted = point.count;
  }
}

// Does not wait for the submission: a collective that other ranks never submit would never end. Drops the
// event: this recording of it failed, so its last successful recording may be in an earlier capture, and
// nothing can wait for an event recorded there.
void CudaDevice::give_up_recording(Stream& stream, Point point) noexcept {
  failures_.add(point, std::current_exception());
  const std::lock_guard lock(mutex_);
  if (stream.captured) {
    stream.endings.pop_back();
  } else {
    stream.endings.back().event.reset();
  }
}

void CudaDevice::do_submit(Point point, const Frontier&, const Work& work) {
  append(point, work.name, 0, [&](CudaStream native) {
    try {
      if (work.run) {
        work.run(native);
      }
    } catch (...) {
      // The work may have been submitted in part. So a later wait reports its failure, like all failures of
      // submitted work.
      failures_.add(point, std::current_exception());
    }
  });
}

void CudaDevice::check_copy(const Copy& copy) const {
  const bool to_host = copy.direction == CopyDirection::kDeviceToHost;
  const AddressRange host = (to_host ? copy.destination : copy.source).range;
  const AddressRange device = (to_host ? copy.source : copy.destination).range;
  const auto refuse = [&](const char* why) {
    throw InvalidArgument(properties().name + ": copy '" + std::string(copy.name) + "' of " +
                          format_size(host.bytes) + why);
  };
  if (!memory_.committed(device)) {
    refuse(", of device memory that is not committed");
  }
  if (host.bytes != 0 && !pinned_.contain(host)) {
    refuse(", where the host's side is not page-locked memory of this device: the copy would wait");
  }
}

void CudaDevice::do_copy(Point point, const Frontier&, const Copy& copy) {
  check_copy(copy);
  const std::uint64_t bytes = copy.source.range.bytes;
  append(point, copy.name, bytes, [&](CudaStream native) {
    context_->check(context_->api().memcpy_async(copy.destination.range.begin, copy.source.range.begin, bytes,
                                                 copy.direction, native),
                    "cudaMemcpyAsync", [&] { return format_size(bytes); });
  });
}

void CudaDevice::do_synchronize(const Frontier& frontier) {
  const CudaContext::Scope scope = context_->enter();
  for (const Point& point : frontier.points()) {
    if (const std::optional<Ending> ending = find_ending(point)) {
      wait_on_host(stream(point.stream), *ending);
    }
  }
  settle(frontier);
  if (const std::exception_ptr failure = failures_.in(frontier)) {
    std::rethrow_exception(failure);
  }
}

bool CudaDevice::do_reached(const Frontier& frontier) {
  const CudaContext::Scope scope = context_->enter();
  return std::ranges::all_of(frontier.points(), [this](const Point& point) {
    const Stream& other = stream(point.stream);
    {
      const std::lock_guard lock(mutex_);
      if (point.count > other.submitted) {
        return false;
      }
    }
    const std::optional<Ending> ending = find_ending(point);
    return !ending || is_past(other, *ending);
  });
}

// --- graphs ------------------------------------------------------------------------------------------------

void CudaDevice::join(const Stream& waiting, const Stream& awaited) {
  const EventPool::Event event = events_.take();
  CudaApi& api = context_->api();
  context_->check(api.event_record(event.get(), awaited.native), "cudaEventRecord");
  context_->check(api.stream_wait_event(waiting.native, event.get()), "cudaStreamWaitEvent");
}

void CudaDevice::do_begin_capture(std::span<const StreamId> streams) {
  const CudaContext::Scope scope = context_->enter();
  if (tracing()) {
    clock_.require_started();  // this thread's submissions to other streams stay timed during the capture
  }
  Stream& origin = stream(streams.front());
  context_->check(context_->api().stream_begin_capture(origin.native), "cudaStreamBeginCapture");
  capturing_ = origin.native;
  for (const StreamId id : streams) {
    Stream& mine = stream(id);
    mine.captured = true;
    if (id != streams.front()) {
      join(mine, origin);
    }
  }
}

std::unique_ptr<DeviceGraph> CudaDevice::do_end_capture(std::span<const StreamId> streams,
                                                        const Frontier& frontier) {
  const CudaContext::Scope scope = context_->enter();
  if (const std::exception_ptr failure = failures_.in(frontier)) {
    std::rethrow_exception(failure);
  }
  for (const StreamId id : streams.subspan(1)) {
    join(stream(streams.front()), stream(id));
  }
  CudaGraph captured = nullptr;
  const CudaStatus ended = context_->api().stream_end_capture(captured, std::exchange(capturing_, nullptr));
  context_->check(ended, "cudaStreamEndCapture");
  for (const StreamId id : streams) {
    stream(id).captured = false;
  }
  return std::make_unique<CudaGraphLaunch>(*context_, captured);
}

void CudaDevice::expect(StreamId id, std::uint64_t before, std::uint64_t last) {
  EventPool::Event event = events_.take();
  Stream& mine = stream(id);
  const std::lock_guard lock(mutex_);
  drop_endings(mine, before);
  if (last > before) {
    mine.endings.push_back({.first = before + 1, .count = last, .event = std::move(event)});
  }
}

void CudaDevice::drop_endings(Stream& stream, std::uint64_t before) {
  while (!stream.endings.empty() && stream.endings.back().count > before) {
    stream.endings.pop_back();
  }
}

void CudaDevice::record_endings(std::span<const StreamId> streams, const Frontier& before,
                                const Frontier& after) {
  CudaApi& api = context_->api();
  const SharedEvent launched =
      find_ending({.stream = streams.front(), .count = after.count(streams.front())})->event;
  for (const StreamId id : streams) {
    const CudaStream native = stream(id).native;
    if (id != streams.front()) {
      context_->check(api.stream_wait_event(native, launched.get()), "cudaStreamWaitEvent");
    }
    if (after.count(id) > before.count(id)) {
      const SharedEvent end = find_ending({.stream = id, .count = after.count(id)})->event;
      context_->check(api.event_record(end.get(), native), "cudaEventRecord");
    }
  }
}

void CudaDevice::do_launch(const DeviceGraph& graph, std::span<const StreamId> streams,
                           const Frontier& before, const Frontier& after) {
  const CudaContext::Scope scope = context_->enter();
  if (const std::exception_ptr failure = failures_.in(after)) {
    std::rethrow_exception(failure);
  }
  for (const StreamId id : streams) {
    expect(id, before.count(id), after.count(id));
  }
  Stream& origin = stream(streams.front());
  std::optional<Timing> timing = start(origin, TraceEvent::Kind::kWork, "graph");
  context_->check(
      context_->api().graph_launch(static_cast<const CudaGraphLaunch&>(graph).exec(), origin.native),
      "cudaGraphLaunch");
  try {
    record_endings(streams, before, after);
    stop(origin, std::move(timing));
  } catch (...) {
    failures_.add({.stream = streams.front(), .count = after.count(streams.front())},
                  std::current_exception());
    // After this wait, all points of the graph have been reached. So the other streams are ordered after
    // these points even without events.
    context_->forget(context_->api().stream_synchronize(origin.native));
    const std::lock_guard lock(mutex_);
    for (const StreamId id : streams) {
      drop_endings(*streams_[id], before.count(id));
    }
  }
  const std::lock_guard lock(mutex_);
  for (const StreamId id : streams) {
    streams_[id]->submitted = after.count(id);
  }
}

void CudaDevice::do_abandon(StreamId id, std::uint64_t before, std::uint64_t last,
                            const std::exception_ptr& cause) noexcept {
  if (capturing_ != nullptr) {
    const CudaContext::Scope scope = context_->enter_anyway();
    CudaGraph captured = nullptr;
    context_->forget(context_->api().stream_end_capture(captured, std::exchange(capturing_, nullptr)));
    if (captured != nullptr) {
      context_->forget(context_->api().graph_destroy(captured));
    }
  }
  if (last > before) {
    failures_.add({.stream = id, .count = last}, cause);
  }
  const std::lock_guard lock(mutex_);
  Stream& mine = *streams_[id];
  drop_endings(mine, before);
  mine.submitted = last;
  mine.captured = false;
}

// --- reached work ------------------------------------------------------------------------------------------

void CudaDevice::settle(const Frontier& reached) {
  const std::lock_guard lock(mutex_);
  for (StreamId id = 0; id < streams_.size(); ++id) {
    settle_endings(*streams_[id], reached.count(id));
    settle_timings(id, *streams_[id]);
  }
}

// Also drops endings of streams that nobody waits for: otherwise their events would accumulate.
void CudaDevice::settle_endings(Stream& stream, std::uint64_t reached) {
  while (!stream.endings.empty() && stream.endings.front().count <= stream.submitted) {
    const Ending& first = stream.endings.front();
    if (first.count > reached && !is_past(stream, first)) {
      return;
    }
    stream.endings.pop_front();
  }
}

void CudaDevice::settle_timings(StreamId id, Stream& stream) {
  while (!stream.timings.empty() &&
         context_->is_ready(context_->api().event_query(stream.timings.front().last()), "cudaEventQuery")) {
    Timing timing = std::move(stream.timings.front());
    stream.timings.pop_front();
    --untold_;
    tell(id, stream, timing);
    if (untold_ == 0) {
      clock_.rebase(timing.end ? std::move(timing.end) : std::move(timing.begin));
    }
  }
}

void CudaDevice::tell(StreamId id, Stream& stream, const Timing& timing) {
  const double begin = clock_.seconds(timing.begin.get());
  const double end = timing.end ? clock_.seconds(timing.end.get()) : begin;
  if (timing.kind == TraceEvent::Kind::kWork) {
    stream.times.busy_seconds += end - begin;
  } else if (timing.kind == TraceEvent::Kind::kWait) {
    stream.times.waiting_seconds += end - begin;
  }
  record(timing.kind, id, timing.name, begin, end, timing.value);
}

StreamTimes CudaDevice::times(StreamId id) const {
  const Stream& mine = stream(id);
  const std::lock_guard lock(mutex_);
  return mine.times;
}

std::optional<Timing> CudaDevice::start(Stream& stream, TraceEvent::Kind kind, std::string_view name) {
  // Work inside a graph has no times.
  if (!tracing() || stream.captured) {
    return std::nullopt;
  }
  return Timing{.kind = kind, .name = std::string(name), .begin = clock_.stamp(stream.native), .end = {}};
}

void CudaDevice::stop(Stream& stream, std::optional<Timing> timing) {
  if (timing) {
    timing->end = clock_.stamp(stream.native);
    keep(stream, std::move(*timing));
  }
}

void CudaDevice::keep(Stream& stream, Timing timing) {
  const std::lock_guard lock(mutex_);
  stream.timings.push_back(std::move(timing));
  ++untold_;
}

void CudaDevice::do_sample_counter(StreamId id, std::string_view counter, std::uint64_t value) {
  const CudaContext::Scope scope = context_->enter();
  Stream& mine = stream(id);
  keep(mine, {.kind = TraceEvent::Kind::kCounter,
              .name = std::string(counter),
              .begin = clock_.stamp(mine.native),
              .end = {},
              .value = value});
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options, std::shared_ptr<CudaApi> api) {
  return std::make_unique<CudaDevice>(
      std::make_unique<CudaContext>(name_of(options), std::move(api), options.ordinal), options);
}

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  return make_cuda_device(options, make_cuda_api());
}

}  // namespace vdnn
