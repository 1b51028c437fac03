// The allocation logs in tests/data/traces.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "bench/replay.h"
#include "bench/replayed_pools.h"
#include "bench/synthetic_allocations.h"
#include "bench/torch_rules.h"
#include "bench/zoo_allocations.h"
#include "vdnn/allocation_log.h"

namespace vdnn::bench {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string text_of(const AllocationLog& log) {
  std::ostringstream out;
  write_allocation_log(out, log);
  return out.str();
}

// Otherwise: record_allocations tests/data/traces
TEST(Traces, AreWhatStepsOfTheZooAndSyntheticProgramsAskForToday) {
  std::set<std::string> names;
  const auto compare = [&](const std::string& name, const AllocationLog& log) {
    names.insert(name + ".txt");
    EXPECT_EQ(contents(VDNN_TRACES "/" + name + ".txt"), text_of(log)) << name;
  };
  each_zoo_log(compare);
  each_synthetic_log(compare);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(VDNN_TRACES)) {
    files.insert(entry.path().filename());
  }
  EXPECT_EQ(files, names);
}

TEST(Traces, CanBeReplayedInEveryAllocatorAndHoldWhatIsLive) {
  for (const auto& entry : std::filesystem::directory_iterator(VDNN_TRACES)) {
    SCOPED_TRACE(entry.path().filename());
    const AllocationLog log = read_allocation_log(contents(entry.path()));
    const std::uint64_t live = peak_live_bytes(log);
    PlainAllocation plain;
    ReplayedDevicePool pool;
    TorchRules fixed(TorchSegments::kFixed);
    TorchRules expandable(TorchSegments::kExpandable);
    for (ReplayedAllocator* const allocator :
         {static_cast<ReplayedAllocator*>(&plain), static_cast<ReplayedAllocator*>(&pool),
          static_cast<ReplayedAllocator*>(&fixed), static_cast<ReplayedAllocator*>(&expandable)}) {
      const Replay once = replay(log, 1, *allocator);
      EXPECT_GE(once.peak_reserved_bytes, live);
      EXPECT_EQ(once.calls, log.events.size());
    }
  }
}

// A step is placed as it was before, so that it takes nothing more.
TEST(Traces, RepeatedStepsTakeNoMoreFromTheDevicePool) {
  for (const char* const name : {"vgg16-all", "googlenet-conv", "unet-all"}) {
    const AllocationLog log = read_allocation_log(contents(VDNN_TRACES "/" + std::string(name) + ".txt"));
    ReplayedDevicePool once;
    ReplayedDevicePool often;
    EXPECT_EQ(replay(log, 5, often).peak_reserved_bytes, replay(log, 1, once).peak_reserved_bytes) << name;
  }
}

}  // namespace
}  // namespace vdnn::bench
