#include "vdnn/cpu_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "streams/cpu/access_check.h"
#include "streams/cpu/arena.h"
#include "streams/cpu/copy_engine.h"
#include "streams/cpu/progress.h"
#include "streams/cpu/worker.h"
#include "streams/failures.h"
#include "streams/host_memory.h"
#include "streams/pinned_blocks.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kGranuleBytes = 64 << 10;
constexpr std::uint64_t kBlockAlignment = 256;
constexpr double kShortestTracedWaitSeconds = 10e-6;

bool pages_for_blocks(const CpuDeviceOptions& options) {
  return options.page_aligned_blocks || options.check_accesses;
}

DeviceProperties properties_for(const CpuDeviceOptions& options) {
  const std::uint64_t memory = host_memory_bytes();
  const std::uint64_t budget = options.budget_bytes != 0 ? options.budget_bytes : memory / 2;
  return {.name = "cpu",
          .memory_bytes = memory,
          .budget_bytes = budget / kGranuleBytes * kGranuleBytes,
          .host_budget_bytes = options.host_budget_bytes != 0 ? options.host_budget_bytes : memory / 2,
          .granule_bytes = kGranuleBytes,
          .alignment_bytes = pages_for_blocks(options) ? kPageBytes : kBlockAlignment,
          .library_bytes = 0,
          .touches_memory = true};
}

std::optional<double> link_bytes_per_second(const CpuDeviceOptions& options) {
  if (!options.link_gbytes_per_second) {
    return std::nullopt;
  }
  return *options.link_gbytes_per_second * 1e9;
}

// Random delays before pieces of work; none without a seed.
class Delays {
 public:
  Delays(std::optional<std::uint64_t> seed, StreamId stream) {
    if (seed) {
      std::seed_seq mixed{*seed & 0xffffffffU, *seed >> 32U, std::uint64_t{stream}};
      random_.emplace(mixed);
    }
  }

  void sleep() {
    if (random_) {
      std::uniform_int_distribution<int> microseconds(0, 1000);
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds(*random_)));
    }
  }

 private:
  std::optional<std::mt19937_64> random_;
};

struct CpuStream {
  CpuStream(StreamId stream, const std::string& stream_name, std::optional<std::uint64_t> delay_seed)
      : id(stream), name(stream_name), delays(delay_seed, stream), worker(stream_name) {}

  const StreamId id;
  const std::string name;
  Progress progress;
  std::mutex times_mutex;
  StreamTimes times;
  Delays delays;  // used by the worker
  Worker worker;  // last, since its thread uses the rest
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options);
  ~CpuDevice() override;

  double now_seconds() const override;
  StreamTimes times(StreamId stream) const override;
  std::string why_not_protect() const override;

 protected:
  AddressRange do_reserve(std::uint64_t bytes) override { return arena_.reserve(bytes); }
  void do_unreserve(AddressRange reservation) override { arena_.unreserve(reservation); }
  void do_commit(AddressRange range) override { arena_.commit(range); }
  void do_decommit(AddressRange range) override { arena_.decommit(range); }
  AddressRange do_allocate_pinned(std::uint64_t bytes) override { return pinned_.take(bytes); }
  void do_free_pinned(AddressRange range) override;
  void do_create_stream(StreamId stream, const std::string& name) override;
  void do_wait(StreamId stream, Point point) override;
  void do_submit(Point point, const Frontier& frontier, const Work& work) override;
  void do_copy(Point point, const Frontier& frontier, const Copy& copy) override;
  void do_synchronize(const Frontier& frontier) override;
  bool do_reached(const Frontier& frontier) override;
  void do_recover() override { failures_.clear(); }
  void do_sample_counter(StreamId stream, std::string_view counter, std::uint64_t value) override;
  void do_protect(Point point, const Frontier& frontier, AddressRange range, Protection protection) override;

 private:
  using Body = std::function<void()>;

  CpuStream& stream(StreamId stream) const;
  // Submits `body` to the stream of `point`, which is reached once `body` has run. Throws if the stream has
  // failed.
  void append(Point point, Body body);
  void complete(CpuStream& stream, Point point, Body body);
  // Runs `body`. If accesses are checked, only the declared ranges are accessible meanwhile.
  void checked(std::string_view name, std::span<const Access> reads, std::span<const Access> writes,
               const Body& body);
  // Runs `body` and records its time. `bytes`: the size of a copy.
  void timed(CpuStream& stream, std::string_view name, const Body& body, std::uint64_t bytes = 0);
  void transfer(CpuStream& stream, const Copy& copy);

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::optional<std::uint64_t> delay_seed_;
  Arena arena_;
  std::unique_ptr<AccessCheck> access_check_;  // null: accesses are not checked
  std::array<CopyEngine, 2> engines_;          // by CopyDirection
  Failures failures_;
  PinnedBlocks pinned_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<CpuStream>> streams_;
};

CpuDevice::CpuDevice(const CpuDeviceOptions& options)
    : Device(properties_for(options)),
      delay_seed_(options.delay_seed),
      arena_(properties().name, kGranuleBytes),
      access_check_(options.check_accesses ? std::make_unique<AccessCheck>(arena_) : nullptr),
      engines_{CopyEngine(link_bytes_per_second(options)), CopyEngine(link_bytes_per_second(options))},
      pinned_(properties().name, properties().host_budget_bytes, Mapping::Kind::kTouched) {}

CpuDevice::~CpuDevice() {
  // All workers finish before any is destroyed, since work queued on one may wait for another.
  for (const auto& each : streams_) {
    each->worker.finish();
  }
}

// --- memory ------------------------------------------------------------------------------------------------

void CpuDevice::do_free_pinned(AddressRange range) {
  pinned_.check(range);
  pinned_.give_back(range);
}

// --- streams -----------------------------------------------------------------------------------------------

CpuStream& CpuDevice::stream(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  if (stream >= streams_.size()) {
    throw InvalidArgument(properties().name + ": there is no stream " + std::to_string(stream));
  }
  return *streams_[stream];
}

void CpuDevice::do_create_stream(StreamId stream, const std::string& name) {
  failures_.add_stream();
  try {
    auto created = std::make_unique<CpuStream>(stream, name, delay_seed_);
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::move(created));
  } catch (const std::system_error& error) {
    throw DeviceError(properties().name + ": no thread for stream '" + name + "': " + error.what());
  }
}

void CpuDevice::append(Point point, Body body) {
  if (const std::exception_ptr failure = failures_.of(point.stream)) {
    std::rethrow_exception(failure);
  }
  CpuStream& mine = stream(point.stream);
  mine.worker.enqueue(
      [this, &mine, point, body = std::move(body)]() mutable { complete(mine, point, std::move(body)); });
}

void CpuDevice::complete(CpuStream& stream, Point point, Body body) {
  if (!failures_.of(stream.id)) {
    try {
      stream.delays.sleep();
      body();
    } catch (...) {
      failures_.add(point, std::current_exception());
    }
  }
  // Releases what the work owns before other threads can see that the work is done.
  body = nullptr;
  stream.progress.reach(point.count);
}

void CpuDevice::checked(std::string_view name, std::span<const Access> reads, std::span<const Access> writes,
                        const Body& body) {
  if (access_check_) {
    access_check_->run(name, reads, writes, body);
  } else {
    body();
  }
}

void CpuDevice::timed(CpuStream& stream, std::string_view name, const Body& body, std::uint64_t bytes) {
  const double begin = now_seconds();
  body();
  const double end = now_seconds();
  {
    const std::lock_guard lock(stream.times_mutex);
    stream.times.busy_seconds += end - begin;
  }
  if (tracing()) {
    record(TraceEvent::Kind::kWork, stream.id, name, begin, end, bytes);
  }
}

void CpuDevice::do_submit(Point point, const Frontier&, const Work& work) {
  // Copies the accesses only if they are checked: the check runs after this call.
  const auto kept = [this](std::span<const Access> accesses) {
    return access_check_ ? std::vector<Access>(accesses.begin(), accesses.end()) : std::vector<Access>();
  };
  CpuStream& mine = stream(point.stream);
  append(point, [this, &mine, name = work.name, run = work.run, reads = kept(work.reads),
                 writes = kept(work.writes)] {
    if (run) {
      checked(name, reads, writes, [&] { timed(mine, name, [&] { run(nullptr); }); });
    }
  });
}

void CpuDevice::do_copy(Point point, const Frontier&, const Copy& copy) {
  CpuStream& mine = stream(point.stream);
  append(point, [this, &mine, copy] {
    checked(copy.name, {&copy.source, 1}, {&copy.destination, 1}, [&] { transfer(mine, copy); });
  });
}

void CpuDevice::transfer(CpuStream& stream, const Copy& copy) {
  const bool to_host = copy.direction == CopyDirection::kDeviceToHost;
  if (!arena_.committed(to_host ? copy.source.range : copy.destination.range)) {
    throw InvalidArgument(properties().name + ": copy '" + std::string(copy.name) +
                          "' of device memory that is not committed");
  }
  CopyEngine& engine = engines_[static_cast<std::size_t>(copy.direction)];
  const auto occupied = engine.occupy();
  const std::uint64_t bytes = copy.source.range.bytes;
  timed(
      stream, copy.name,
      [&] { engine.transfer(copy.destination.range.begin, copy.source.range.begin, bytes); }, bytes);
}

void CpuDevice::do_wait(StreamId waiting, Point point) {
  CpuStream& mine = stream(waiting);
  CpuStream& other = stream(point.stream);
  // The name is made here, where a lack of memory can be reported.
  const std::string name = tracing() ? "wait for " + other.name : "";
  mine.worker.enqueue([this, &mine, &other, point, name] {
    const double begin = now_seconds();
    other.progress.wait_for(point.count);
    const double end = now_seconds();
    {
      const std::lock_guard lock(mine.times_mutex);
      mine.times.waiting_seconds += end - begin;
    }
    if (!name.empty() && end - begin > kShortestTracedWaitSeconds) {
      record(TraceEvent::Kind::kWait, mine.id, name, begin, end);
    }
  });
}

void CpuDevice::do_synchronize(const Frontier& frontier) {
  for (const Point& point : frontier.points()) {
    stream(point.stream).progress.wait_for(point.count);
  }
  if (const std::exception_ptr failure = failures_.in(frontier)) {
    std::rethrow_exception(failure);
  }
}

bool CpuDevice::do_reached(const Frontier& frontier) {
  return std::ranges::all_of(frontier.points(), [this](const Point& point) {
    return stream(point.stream).progress.reached(point.count);
  });
}

// --- time and observation ----------------------------------------------------------------------------------

double CpuDevice::now_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

StreamTimes CpuDevice::times(StreamId id) const {
  CpuStream& mine = stream(id);
  const std::lock_guard lock(mine.times_mutex);
  return mine.times;
}

void CpuDevice::do_sample_counter(StreamId id, std::string_view counter, std::uint64_t value) {
  CpuStream& mine = stream(id);
  mine.worker.enqueue([this, id, name = std::string(counter), value] {
    const double now = now_seconds();
    record(TraceEvent::Kind::kCounter, id, name, now, now, value);
  });
}

// --- protection --------------------------------------------------------------------------------------------

std::string CpuDevice::why_not_protect() const {
  return properties().alignment_bytes >= kPageBytes
             ? ""
             : "blocks share pages unless the device is made with page_aligned_blocks";
}

void CpuDevice::do_protect(Point point, const Frontier&, AddressRange range, Protection protection) {
  append(point, [this, range, protection] { arena_.protect(range, protection); });
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  constexpr double kSlowestLink = 1e-6;  // 1 kB/s: below, sleeping for a copy overflows the clock
  if (options.link_gbytes_per_second && (!(*options.link_gbytes_per_second >= kSlowestLink) ||
                                         !std::isfinite(*options.link_gbytes_per_second))) {
    throw InvalidArgument("cpu: a link of " + std::to_string(*options.link_gbytes_per_second) +
                          " GB/s; it must be a number from 1e-6 up");
  }
  if (options.budget_bytes != 0 && options.budget_bytes < kGranuleBytes) {
    throw InvalidArgument("cpu: a budget of " + format_size(options.budget_bytes) +
                          " is less than one granule of " + format_size(kGranuleBytes));
  }
  return std::make_unique<CpuDevice>(options);
}

}  // namespace vdnn
