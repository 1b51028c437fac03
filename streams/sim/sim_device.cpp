#include "vdnn/sim_device.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <string_view>
#include <utility>

#include "src/base/random.h"
#include "streams/mapping.h"
#include "streams/sim/random_order.h"
#include "streams/sim/sim_checks.h"
#include "streams/sim/sim_memory.h"
#include "streams/sim/virtual_clock.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

void check_profile(const SimProfile& profile) {
  const auto require = [&](bool holds, const char* what) {
    if (!holds) {
      throw InvalidArgument("sim profile '" + profile.name + "': " + what);
    }
  };
  require(std::has_single_bit(profile.granule_bytes), "the granule must be a power of two");
  require(std::has_single_bit(profile.alignment_bytes), "the alignment must be a power of two");
  require(profile.granule_bytes <= profile.memory_bytes, "the granule must fit into the memory");
  const FlopRates& flops = profile.flops_per_second;
  require(
      flops.convolution > 0 && flops.matrix_product > 0 && flops.other > 0 && profile.bytes_per_second > 0,
      "rates must be positive");
  require(flops.tf32 >= 0 && flops.fp16 >= 0 && flops.bf16 >= 0,
          "rates of products in smaller types must be positive, or 0 where there are none");
  for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
    const double both_ways = profile.link_bytes_per_second_both_ways[direction];
    require(both_ways > 0 && both_ways <= profile.link_bytes_per_second[direction],
            "the rates of the link must be positive, and with both directions busy no greater");
  }
  require(profile.launch_seconds >= 0, "the time of a launch must not be negative");
}

DeviceProperties properties_of(const SimDeviceOptions& options) {
  const SimProfile& profile = options.profile;
  check_profile(profile);
  const std::uint64_t budget = options.budget_bytes != 0 ? options.budget_bytes : profile.memory_bytes;
  DeviceProperties properties;
  properties.name = "sim:" + profile.name;
  properties.memory_bytes = profile.memory_bytes;
  properties.budget_bytes = budget - budget % profile.granule_bytes;
  properties.host_budget_bytes =
      options.host_budget_bytes != 0 ? options.host_budget_bytes : profile.host_memory_bytes / 2;
  properties.granule_bytes = profile.granule_bytes;
  // Like the `cpu` driver, whose page tables protect whole pages.
  properties.alignment_bytes =
      options.page_aligned_blocks ? std::max(profile.alignment_bytes, kPageBytes) : profile.alignment_bytes;
  properties.touches_memory = false;
  return properties;
}

// A step with copies of its name and accesses, since it outlives the call that submitted it.
struct QueuedStep {
  explicit QueuedStep(const SimStep& from)
      : step(from),
        name(from.name),
        reads(from.reads.begin(), from.reads.end()),
        writes(from.writes.begin(), from.writes.end()) {}

  SimStep view() const {
    SimStep viewed = step;
    viewed.name = name;
    viewed.reads = reads;
    viewed.writes = writes;
    return viewed;
  }

  SimStep step;  // its name and spans dangle after the call; see view()
  std::string name;
  std::vector<Access> reads;
  std::vector<Access> writes;
};

// Executes submissions, waits and samples of counters: immediately, or when the random order selects them.
// Each execution advances the virtual clock, is checked, and is recorded.
class SimDeviceDriver final : public SimDevice {
 public:
  explicit SimDeviceDriver(const SimDeviceOptions& options)
      : SimDevice(properties_of(options)),
        profile_(options.profile),
        memory_(properties().name, properties().granule_bytes),
        checks_(options.check_races, options.check_versions, memory_) {
    if (options.order_seed) {
      order_.emplace(*options.order_seed);
    }
  }

  double now_seconds() const override {
    const std::lock_guard lock(mutex_);
    return clock_.now();
  }

  StreamTimes times(StreamId stream) const override {
    check_stream(stream);
    const std::lock_guard lock(mutex_);
    return clock_.times(stream);
  }

  std::string why_not_protect() const override { return ""; }

  const std::vector<SimFinding>& findings() const override { return checks_.findings(); }

  std::uint64_t order_hash() const override {
    const std::lock_guard lock(mutex_);
    return order_hash_;
  }

  double finish_seconds() const override {
    const std::lock_guard lock(mutex_);
    if (order_) {
      throw InvalidArgument(properties().name + ": a random order has no finishing time");
    }
    return clock_.finish();
  }

 private:
  AddressRange do_reserve(std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    return memory_.reserve(bytes);
  }

  void do_unreserve(AddressRange reservation) override {
    const std::lock_guard lock(mutex_);
    memory_.unreserve(reservation);
  }

  bool do_reached(const Frontier& frontier) override {
    for (const Point& point : frontier.points()) {
      check_stream(point.stream);
    }
    const std::lock_guard lock(mutex_);
    const bool reached = std::ranges::all_of(frontier.points(), [this](const Point& point) {
      return order_ ? order_->executed(point) : clock_.reached(point);
    });
    if (reached) {
      checks_.synchronize(frontier);  // from now on, the host may rely on `frontier`
    }
    return reached;
  }

  void do_commit(AddressRange range) override {
    const std::lock_guard lock(mutex_);
    memory_.commit(range);
  }

  void do_decommit(AddressRange range) override {
    const std::lock_guard lock(mutex_);
    memory_.decommit(range);
    checks_.release(range, "decommit");
  }

  AddressRange do_allocate_pinned(std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    return memory_.allocate_pinned(bytes);
  }

  void do_free_pinned(AddressRange range) override {
    const std::lock_guard lock(mutex_);
    memory_.free_pinned(range);
    checks_.release(range, "free_pinned");
  }

  void do_create_stream(StreamId, const std::string&) override {
    const std::lock_guard lock(mutex_);
    clock_.add_stream();
    checks_.add_stream();
    if (order_) {
      order_->add_stream();
    }
  }

  void do_wait(StreamId stream, Point point) override {
    const std::lock_guard lock(mutex_);
    if (order_) {
      order_->wait(stream, point, [this, stream, point] { execute_wait(stream, point); });
    } else {
      execute_wait(stream, point);
    }
  }

  void do_submit(Point point, const Frontier& frontier, const Work& work) override {
    submit_step({.point = point,
                 .name = work.name,
                 .reads = work.reads,
                 .writes = work.writes,
                 .copy = {},
                 .seconds = profile_.seconds(work.cost)},
                frontier);
  }

  void do_copy(Point point, const Frontier& frontier, const Copy& copy) override {
    const auto bytes = static_cast<double>(copy.source.range.bytes);
    submit_step({.point = point,
                 .name = copy.name,
                 .reads = {&copy.source, 1},
                 .writes = {&copy.destination, 1},
                 .copy = copy.direction,
                 .seconds = profile_.launch_seconds + bytes / profile_.link_bytes_per_second[copy.direction],
                 .seconds_both_ways = profile_.launch_seconds +
                                      bytes / profile_.link_bytes_per_second_both_ways[copy.direction]},
                frontier);
  }

  void do_protect(Point point, const Frontier& frontier, AddressRange range, Protection protection) override {
    const std::lock_guard lock(mutex_);
    // Counts as a write: it conflicts with any earlier or later use of the range that is not ordered with
    // it.
    const Access access{.range = range};
    checks_.submitted({.point = point, .name = "protect", .reads = {}, .writes = {&access, 1}, .copy = {}},
                      frontier);
    dispatch(point, [this, point, range, protection] {
      memory_.protect(range, protection);
      take_time({.point = point, .name = "protect", .reads = {}, .writes = {}, .copy = {}});
    });
  }

  void do_synchronize(const Frontier& frontier) override {
    const std::lock_guard lock(mutex_);
    if (order_) {
      order_->run_until(frontier);
    }
    clock_.synchronize(frontier);
    checks_.synchronize(frontier);
  }

  void do_sample_counter(StreamId stream, std::string_view counter, std::uint64_t value) override {
    check_stream(stream);
    const std::lock_guard lock(mutex_);
    if (order_) {
      order_->follow(stream,
                     [this, stream, value, name = std::string(counter)] { sample(stream, name, value); });
    } else {
      sample(stream, std::string(counter), value);
    }
  }

  // Throws InvalidArgument if there is no such stream.
  void check_stream(StreamId stream) const { static_cast<void>(stream_name(stream)); }

  template <class Execute>
  void dispatch(Point point, Execute&& execute) {
    if (order_) {
      order_->submit(point.stream, std::forward<Execute>(execute));
    } else {
      execute();
    }
  }

  void submit_step(const SimStep& step, const Frontier& frontier) {
    const std::lock_guard lock(mutex_);
    checks_.submitted(step, frontier);
    if (order_) {
      order_->submit(step.point.stream, [this, queued = QueuedStep(step)] { execute_step(queued.view()); });
    } else {
      execute_step(step);
    }
  }

  void execute_step(const SimStep& step) {
    if (checks_.any()) {
      checks_.executed(step);
    }
    take_time(step);
  }

  void take_time(const SimStep& step) {
    const StreamId stream = step.point.stream;
    const TimeSpan span = step.copy ? clock_.copy(stream, *step.copy, step.seconds, step.seconds_both_ways)
                                    : clock_.run(stream, step.seconds);
    order_hash_ = mix64(mix64(order_hash_ ^ stream) ^ step.point.count);
    if (tracing()) {
      record(TraceEvent::Kind::kWork, stream, step.name, span.begin, span.end,
             step.copy ? step.reads.front().range.bytes : 0);
    }
  }

  void execute_wait(StreamId stream, Point awaited) {
    const TimeSpan span = clock_.wait(stream, awaited);
    if (tracing() && span.begin < span.end) {
      record(TraceEvent::Kind::kWait, stream, "wait for " + stream_name(awaited.stream), span.begin,
             span.end);
    }
  }

  void sample(StreamId stream, const std::string& counter, std::uint64_t value) {
    const double at = clock_.ready(stream);
    record(TraceEvent::Kind::kCounter, stream, counter, at, at, value);
  }

  const SimProfile profile_;
  mutable std::mutex mutex_;  // guards the members below
  SimMemory memory_;
  SimChecks checks_;
  VirtualClock clock_;
  std::optional<RandomOrder> order_;
  std::uint64_t order_hash_ = 1;
};

}  // namespace

std::unique_ptr<SimDevice> make_sim_device(const SimDeviceOptions& options) {
  return std::make_unique<SimDeviceDriver>(options);
}

}  // namespace vdnn
