#pragma once
// Random tapes with few feature maps and measured costs, for tests that try all plans.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/random.h"
#include "vdnn/sim_device.h"
#include "vdnn/tape.h"

namespace vdnn::testing {

struct SmallTape {
  std::shared_ptr<const Tape> tape;
  SimProfile profile;  // its link is about as fast as the ops
};

inline constexpr std::uint64_t kUnitBytes = std::uint64_t{64} << 10U;
inline constexpr std::size_t kMostFeatureMaps = 7;

// A chain of three to seven feature maps. Each map is read by the op that makes the next map, and sometimes
// by a later op, too. The backward op of the map's producer or of its reader may read the map again. Some ops
// have a slower algorithm without workspace.
class SmallTapeDraft {
 public:
  explicit SmallTapeDraft(std::uint64_t seed) : random_(seed) {}

  SmallTape build() && {
    const std::size_t count = 3 + random_.below(kMostFeatureMaps - 2);
    std::vector<ValueId> maps{value("images", ValueKind::kInput, units(8))};
    const ValueId targets = value("targets", ValueKind::kTarget, kUnitBytes / 64);
    std::vector<std::vector<ValueId>> kept(count + 1);  // what each backward op reads
    for (std::size_t each = 1; each <= count; ++each) {
      std::vector<ValueId> reads{maps.back()};
      if (each > 2 && chance(0.3)) {
        reads.push_back(maps[1 + random_.below(each - 2)]);
        kept[each].push_back(reads.back());
      }
      if (chance(0.7)) {
        kept[each].push_back(maps.back());
      }
      maps.push_back(value("y" + std::to_string(each), ValueKind::kFeatureMap, units(16)));
      if (chance(0.3)) {
        kept[each].push_back(maps.back());
      }
      op("forward" + std::to_string(each), Phase::kForward, reads, {maps.back()});
    }
    const ValueId metrics = value("metrics", ValueKind::kMetrics, 64);
    op("loss", Phase::kForward, {maps.back(), targets}, {metrics});
    ValueId gradient = value("dy" + std::to_string(count), ValueKind::kGradientMap, bytes(maps.back()));
    op("loss.backward", Phase::kBackward, {maps.back(), targets}, {gradient});
    for (std::size_t each = count; each > 0; --each) {
      std::vector<ValueId> reads{gradient};
      reads.insert(reads.end(), kept[each].begin(), kept[each].end());
      gradient = each > 1
                     ? value("dy" + std::to_string(each - 1), ValueKind::kGradientMap, bytes(maps[each - 1]))
                     : value("dw", ValueKind::kParameterGradient, kUnitBytes);
      op("backward" + std::to_string(each), Phase::kBackward, reads, {gradient});
    }
    const ValueId weights = value("w", ValueKind::kParameter, kUnitBytes);
    ParameterRecipe recipe;
    recipe.name = "w";
    recipe.storage_bytes = kUnitBytes;
    parts_.parameters.push_back({.value = weights, .state = {}, .recipe = recipe});
    op("update", Phase::kUpdate, {weights, gradient}, {weights});
    parts_.model = "small";
    parts_.results = {metrics};
    parts_.loss_weights = {1};
    parts_.layers = {{.name = "all"}};
    return {.tape = std::make_shared<const Tape>(std::move(parts_)), .profile = profile()};
  }

 private:
  bool chance(double probability) { return uniform() < probability; }
  double uniform() { return static_cast<double>(random_.below(1U << 20U)) / (1U << 20U); }
  std::uint64_t units(std::uint64_t most) { return kUnitBytes * (1 + random_.below(most)); }
  double seconds() { return 2e-4 * std::exp(3 * uniform()); }

  ValueId value(const std::string& name, ValueKind kind, std::uint64_t size) {
    parts_.values.push_back({.name = name, .kind = kind, .type = {}, .bytes = size});
    const auto id = static_cast<ValueId>(parts_.values.size() - 1);
    if (parts_.values.back().loaded()) {
      parts_.inputs.push_back(id);
    }
    return id;
  }
  std::uint64_t bytes(ValueId id) const { return parts_.values[id].bytes; }

  void op(const std::string& name, Phase phase, std::vector<ValueId> reads, std::vector<ValueId> writes) {
    std::ranges::sort(reads);
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    const double fast = seconds();
    std::vector<Algorithm> algorithms{{.name = "fast", .cost = Cost{.seconds = fast}}};
    if (chance(0.25)) {
      algorithms.front().workspace_bytes = units(16);
      algorithms.push_back({.name = "lean", .cost = Cost{.seconds = fast * (1.2 + 1.5 * uniform())}});
    }
    parts_.ops.push_back({.name = name,
                          .layer = 0,
                          .phase = phase,
                          .direction = Direction::kForward,
                          .spec = ReluSpec{},
                          .layer_inputs = {},
                          .layer_outputs = {},
                          .reads = std::move(reads),
                          .writes = std::move(writes),
                          .may_overwrite = {},
                          .algorithms = std::move(algorithms),
                          .cost = {}});
  }

  SimProfile profile() {
    SimProfile profile = sim_profile("titan-x");
    const double link = 2.5e8 * std::exp(2.5 * uniform());
    profile.link_bytes_per_second = {.device_to_host = link, .host_to_device = link};
    profile.link_bytes_per_second_both_ways = {.device_to_host = link, .host_to_device = 0.6 * link};
    profile.granule_bytes = kUnitBytes;
    profile.launch_seconds = 1e-6;
    return profile;
  }

  SplitMix64 random_;
  Tape::Parts parts_;
};

inline SmallTape small_tape(std::uint64_t seed) {
  return SmallTapeDraft(seed).build();
}

}  // namespace vdnn::testing
