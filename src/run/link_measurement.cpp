#include "src/run/link_measurement.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/median.h"
#include "src/run/link_rates.h"
#include "vdnn/device_pool.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::size_t kPairs = 8;     // pairs of blocks if memory permits: together larger than caches
constexpr std::size_t kRounds = 3;    // rounds of copies over all pairs
constexpr std::size_t kMinPairs = 2;  // one for each direction
// Small copies have 1/16 of a block. The fixed time of a copy follows from the times of the two sizes.
constexpr std::uint64_t kSmallPart = 16;

// Pairs of blocks of one size. One block of a pair is in device memory, the other in page-locked memory. The
// destructor waits for the device, then frees the blocks.
class Blocks {
 public:
  Blocks(Device& device, PinnedPool& pinned, StreamId stream, std::uint64_t bytes)
      : device_(device), pool_(device, {.budget_bytes = room(device)}), pinned_(pinned) {
    while (pairs_.size() < kPairs && add_pair(stream, bytes)) {
    }
  }
  ~Blocks() {
    try {
      device_.synchronize_all();
      for (const Pair& pair : pairs_) {
        pool_.free(pair.device, {});
        pinned_.free(pair.host, {});
      }
      pinned_.trim();
    } catch (...) {  // later calls report the device's failure; the pools free the rest
    }
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  bool enough() const { return pairs_.size() >= kMinPairs; }
  std::size_t size() const { return pairs_.size(); }
  MemoryShortage shortage(std::uint64_t bytes) const { return pool_.shortage(bytes); }

  // Copies the first `bytes` of a pair's block to its other block.
  void copy(StreamId stream, CopyDirection direction, std::size_t index, std::uint64_t bytes) {
    Pair pair = pairs_[index];
    pair.device.bytes = bytes;
    pair.host.bytes = bytes;
    const bool to_host = direction == CopyDirection::kDeviceToHost;
    device_.copy(stream, {.name = "measured copy",
                          .direction = direction,
                          .destination = {.range = to_host ? pair.host : pair.device},
                          .source = {.range = to_host ? pair.device : pair.host}});
  }

 private:
  struct Pair {
    AddressRange device;
    AddressRange host;
  };

  // The part of the device's budget that other pools have not committed. Returns at least one granule, since
  // a budget of 0 would mean the device's whole budget.
  static std::uint64_t room(const Device& device) {
    const std::uint64_t committed = device.counters().committed_bytes;
    const std::uint64_t budget = device.properties().budget_bytes;
    return std::max(device.properties().granule_bytes, budget - std::min(budget, committed));
  }

  bool add_pair(StreamId stream, std::uint64_t bytes) {
    const auto on_device = pool_.allocate(bytes, stream);
    if (!on_device) {
      return false;
    }
    const auto on_host = pinned_.allocate_for_host(bytes);
    if (!on_host) {
      pool_.free(*on_device, {});
      return false;
    }
    pairs_.push_back({.device = {.begin = on_device->begin, .bytes = bytes}, .host = *on_host});
    return true;
  }

  Device& device_;
  DevicePool pool_;
  PinnedPool& pinned_;
  std::vector<Pair> pairs_;
};

using Streams = std::array<StreamId, kDirections.size()>;
using Events = std::array<std::vector<TraceEvent>, kDirections.size()>;

// Calls `submit`, and returns the copies that it has submitted, by the direction of their stream. A copy's
// time counts from the end of the previous copy, so it includes the gap between the two.
template <class Submit>
Events traced(Device& device, const Streams& streams, const Submit& submit) {
  device.set_tracing(true);
  submit();
  device.synchronize_all();
  device.set_tracing(false);
  Events events;
  for (const TraceEvent& event : device.take_trace()) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (event.kind == TraceEvent::Kind::kWork && event.stream == streams[i]) {
        events[i].push_back(event);
      }
    }
  }
  for (std::vector<TraceEvent>& copies : events) {
    for (std::size_t i = copies.size(); i-- > 1;) {
      copies[i].begin_seconds = copies[i - 1].end_seconds;
    }
    copies.erase(copies.begin(), copies.begin() + std::min<std::ptrdiff_t>(1, std::ssize(copies)));
  }
  return events;
}

double seconds_of(const TraceEvent& event) {
  return event.end_seconds - event.begin_seconds;
}

double median_seconds(const std::vector<TraceEvent>& events) {
  std::vector<double> seconds(events.size());
  std::ranges::transform(events, seconds.begin(), seconds_of);
  return median(std::move(seconds));
}

// The fixed time of a copy, computed from the times of a large and a small copy. It is 0 if the small copy is
// faster per byte, for example because it fits into a cache.
double seconds_besides(double large, double small) {
  constexpr double kPart = kSmallPart;
  return std::max(0.0, (kPart * small - large) / (kPart - 1));
}

// The copies of `events` that began and ended while copies of `others` ran.
std::vector<TraceEvent> accompanied(const std::vector<TraceEvent>& events,
                                    const std::vector<TraceEvent>& others) {
  std::vector<TraceEvent> result;
  for (const TraceEvent& event : events) {
    if (!others.empty() && event.begin_seconds >= others.front().begin_seconds &&
        event.end_seconds <= others.back().end_seconds) {
      result.push_back(event);
    }
  }
  return result;
}

// Measures copies between blocks of `bytes`, on streams of one device.
class LinkMeasurement {
 public:
  LinkMeasurement(Device& device, Blocks& blocks, const Streams& streams, std::uint64_t bytes)
      : device_(device), blocks_(blocks), streams_(streams), bytes_(bytes) {}

  MeasuredLink measure() {
    // Writes all blocks first, so that no measured copy reads memory that has never been written.
    for (const std::size_t i : {1, 0}) {
      one_way(i, bytes_);
      device_.synchronize_all();
    }
    std::array<double, kDirections.size()> seconds{};
    std::array<double, kDirections.size()> besides{};
    for (std::size_t i = 0; i < kDirections.size(); ++i) {
      seconds[i] = seconds_one_way(i, bytes_);
      const std::uint64_t part = bytes_ / kSmallPart;
      besides[i] = part == 0 ? 0 : seconds_besides(seconds[i], seconds_one_way(i, part));
    }
    MeasuredLink link{.copy_seconds = std::ranges::min(besides)};
    const auto rate = [&](double taken) { return static_cast<double>(bytes_) / (taken - link.copy_seconds); };
    const Events events = traced(device_, streams_, [&] { both_ways(); });
    for (std::size_t i = 0; i < kDirections.size(); ++i) {
      const std::vector<TraceEvent> beside = accompanied(events[i], events[1 - i]);
      const double both = beside.empty() ? 0 : median_seconds(beside);
      rate_of(link.one_way, kDirections[i]) = rate(seconds[i]);
      rate_of(link.both_ways, kDirections[i]) = rate(std::max(seconds[i], both));
    }
    return link;
  }

 private:
  void one_way(std::size_t i, std::uint64_t bytes) {
    for (std::size_t copy = 0; copy < blocks_.size(); ++copy) {
      blocks_.copy(streams_[i], kDirections[i], copy, bytes);
    }
  }

  double seconds_one_way(std::size_t i, std::uint64_t bytes) {
    const Events events = traced(device_, streams_, [&] {
      for (std::size_t round = 0; round < kRounds; ++round) {
        one_way(i, bytes);
      }
    });
    return median_seconds(events[i]);
  }

  // Copies in both directions at once. At any time the two directions use different blocks.
  void both_ways() {
    const std::size_t blocks = blocks_.size() / 2 * 2;
    for (std::size_t copy = 0; copy < 2 * kRounds * blocks_.size(); ++copy) {
      for (std::size_t i = 0; i < kDirections.size(); ++i) {
        blocks_.copy(streams_[i], kDirections[i], (2 * copy + i) % blocks, bytes_);
      }
    }
  }

  Device& device_;
  Blocks& blocks_;
  const Streams& streams_;
  std::uint64_t bytes_;
};

}  // namespace

MeasuredLink measure_link(Device& device, PinnedPool& pinned, std::uint64_t copy_bytes) {
  const Streams streams{device.create_stream("link to host"), device.create_stream("link to device")};
  for (std::uint64_t bytes = copy_bytes; bytes > 0; bytes /= 2) {
    Blocks blocks(device, pinned, streams[0], bytes);
    if (blocks.enough()) {
      return LinkMeasurement(device, blocks, streams, bytes).measure();
    }
    if (bytes == 1) {
      throw OutOfMemory("copies to measure the link with", blocks.shortage(bytes));
    }
  }
  throw InvalidArgument("measuring a link needs copies of at least 1 byte");
}

}  // namespace vdnn
