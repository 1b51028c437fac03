// The allocation logs in tests/data/traces.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "bench/comparison.h"
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

// If an intended change makes this test fail, write the logs anew: record_allocations tests/data/traces
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

// Calls visit(log) for each log; failures name the log.
template <class Visit>
void each_trace(const Visit& visit) {
  for (const auto& entry : std::filesystem::directory_iterator(VDNN_TRACES)) {
    SCOPED_TRACE(entry.path().filename());
    visit(read_allocation_log(contents(entry.path())));
  }
}

TEST(Traces, CanBeReplayedInEveryAllocatorAndHoldWhatIsLive) {
  each_trace([](const AllocationLog& log) {
    const std::uint64_t live = peak_live_bytes(log);
    PlainAllocation plain;
    ReplayedDevicePool pool;
    ReplayedStreamPool stream_pool;
    TorchRules fixed(TorchSegments::kFixed);
    TorchRules expandable(TorchSegments::kExpandable);
    for (ReplayedAllocator* const allocator :
         {static_cast<ReplayedAllocator*>(&plain), static_cast<ReplayedAllocator*>(&pool),
          static_cast<ReplayedAllocator*>(&stream_pool), static_cast<ReplayedAllocator*>(&fixed),
          static_cast<ReplayedAllocator*>(&expandable)}) {
      const Replay once = replay(log, 1, *allocator);
      EXPECT_GE(once.peak_reserved_bytes, live);
      EXPECT_EQ(once.calls, log.events.size());
    }
  });
}

// In a small program, a few granules are a large fraction, which tells nothing about placement.
constexpr std::uint64_t kLarge = std::uint64_t{256} << 20;

TEST(Traces, TheStreamPoolHoldsATenthMoreThanIsLiveAtMostAndNeverMoreThanPyTorchsRules) {
  std::size_t large = 0;
  each_trace([&](const AllocationLog& log) {
    const std::uint64_t live = peak_live_bytes(log);
    if (live < kLarge) {
      return;
    }
    ++large;
    ReplayedStreamPool ours;
    TorchRules fixed(TorchSegments::kFixed);
    TorchRules expandable(TorchSegments::kExpandable);
    const std::uint64_t reserved = replay(log, 3, ours).peak_reserved_bytes;
    EXPECT_GE(reserved, live);
    EXPECT_LE(reserved, live + live / 10);
    EXPECT_LE(reserved, replay(log, 3, fixed).peak_reserved_bytes);
    EXPECT_LE(reserved, replay(log, 3, expandable).peak_reserved_bytes);
  });
  EXPECT_GE(large, 60U);
}

// The table is the output of: allocator_replay --markdown --least-live 256 tests/data/traces/*.txt
TEST(Traces, AreInTheTableOfTheDocumentation) {
  const std::string documentation = contents(VDNN_DOCS "/allocator.md");
  const auto has = [&](const std::string& line) {
    EXPECT_NE(documentation.find("\n" + line + "\n"), std::string::npos) << line;
  };
  has(markdown_header());
  for (const auto& entry : std::filesystem::directory_iterator(VDNN_TRACES)) {
    const AllocationLog log = read_allocation_log(contents(entry.path()));
    if (peak_live_bytes(log) >= kLarge) {
      has(markdown_row(compare(entry.path().stem(), log, 3)));
    }
  }
}

// Mapping costs time, so the number of maps must stop growing.
TEST(Traces, RepeatedStepsMapNothingMoreInTheStreamPool) {
  each_trace([](const AllocationLog& log) {
    ReplayedStreamPool some;
    ReplayedStreamPool many;
    replay(log, 6, some);
    replay(log, 12, many);
    EXPECT_EQ(many.mapped_granules(), some.mapped_granules());
  });
}

// Each step is placed like the first, so it needs no more memory.
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
