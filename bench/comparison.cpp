#include "bench/comparison.h"

#include <array>
#include <cstdio>
#include <utility>

#include "bench/replayed_pools.h"
#include "bench/torch_rules.h"

namespace vdnn::bench {

namespace {

template <class Allocator, auto... arguments>
std::unique_ptr<ReplayedAllocator> make() {
  return std::make_unique<Allocator>(arguments...);
}

constexpr std::array kContestants{
    Contestant{"plain", make<PlainAllocation>},
    Contestant{"device pool", make<ReplayedDevicePool>},
    Contestant{"stream pool", make<ReplayedStreamPool>},
    Contestant{"torch", make<TorchRules, TorchSegments::kFixed>},
    Contestant{"expandable", make<TorchRules, TorchSegments::kExpandable>},
};

std::string format(const char* form, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), form, value);
  return text.data();
}

}  // namespace

std::span<const Contestant> contestants() {
  return kContestants;
}

Comparison compare(std::string name, const AllocationLog& log, std::size_t steps) {
  Comparison comparison{.log = std::move(name), .live_bytes = peak_live_bytes(log)};
  for (const Contestant& contestant : kContestants) {
    const auto allocator = contestant.make();
    const Replay done = replay(log, steps, *allocator);
    comparison.outcomes.push_back({.replay = done,
                                   .reserved_over_live = static_cast<double>(done.peak_reserved_bytes) /
                                                         static_cast<double>(comparison.live_bytes)});
  }
  return comparison;
}

std::string markdown_header() {
  std::string names = "| log | live, MiB |";
  std::string lines = "|---|---|";
  for (const Contestant& contestant : kContestants) {
    names += std::string(" ") + contestant.name + " |";
    lines += "---|";
  }
  return names + "\n" + lines;
}

std::string markdown_row(const Comparison& comparison) {
  std::string row = "| " + comparison.log + " | " +
                    format("%.1f", static_cast<double>(comparison.live_bytes) / (1 << 20)) + " |";
  for (const Outcome& outcome : comparison.outcomes) {
    row += format(" %.3f |", outcome.reserved_over_live);
  }
  return row;
}

}  // namespace vdnn::bench
