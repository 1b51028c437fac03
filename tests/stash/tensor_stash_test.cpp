// Decisions and statistics of a stash: static networks, budgets, host memory, kinds of steps, ends of
// handles.

#include "vdnn/tensor_stash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/stash/cuda_stash_backend.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/stash/forwarding_stash_backend.h"
#include "tests/stash/stash_judge.h"
#include "tests/stash/stash_program.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

constexpr std::uint64_t kUnit = 256;

// A network whose largest maps come first, as in convolutional networks.
Chain network() {
  Chain chain;
  for (const std::uint64_t units : {8, 8, 8, 4, 4, 4, 2, 2, 2, 1, 1, 1}) {
    chain.push_back({.bytes = units * kUnit});
  }
  return chain;
}
constexpr std::uint64_t kSavedBytes = 45 * kUnit;

// A program on `sim` that reports its bytes in use.
class Training {
 public:
  using Wrap = std::function<std::unique_ptr<StashBackend>(std::unique_ptr<StashBackend>)>;

  explicit Training(const StashOptions& options, const Wrap& wrap = {})
      : adapter_(*judge_, memory_, options, true, {}, wrap) {}

  // Returns the statistics of this step alone.
  StashStatistics step(const Chain& chain) {
    const StashStatistics before = adapter_.stash().statistics();
    program_.step(chain, false);
    StashStatistics after = adapter_.stash().statistics();
    after.out_bytes -= before.out_bytes;
    after.in_bytes -= before.in_bytes;
    after.left -= before.left;
    after.refused -= before.refused;
    after.fetched_ahead -= before.fetched_ahead;
    after.fetched_late -= before.fetched_late;
    after.page_locks -= before.page_locks;
    return after;
  }
  TensorStash& stash() { return adapter_.stash(); }
  // Allocates memory that stays in use, like the optimizer's state in the first step.
  void keep(std::uint64_t bytes) {
    kept_.push_back(std::make_unique<Storage>(memory_, bytes, judge_->stream(0), 0));
  }
  std::uint64_t take_told_peak() { return adapter_.take_told_peak(); }
  const std::vector<std::uint64_t>& decisions() const { return adapter_.decisions(); }
  void finish() {
    kept_.clear();
    adapter_.end();
    EXPECT_THAT(judge_->finish(), ::testing::IsEmpty());
  }

 private:
  std::unique_ptr<StashJudge> judge_ = make_stash_judge(JudgeKind::kSim, 0);
  CachingMemory memory_{*judge_};
  StashAdapter adapter_;
  StashProgram program_{*judge_, adapter_, memory_, 0};
  std::vector<std::unique_ptr<Storage>> kept_;
};

// --- static networks ---------------------------------------------------------------------------------------

TEST(TensorStash, ARunThatFitsMovesNothing) {
  Training training({.budget_bytes = 100 * kUnit});
  for (int i = 0; i < 4; ++i) {
    const StashStatistics step = training.step(network());
    EXPECT_EQ(step.out_bytes + step.in_bytes + step.page_locks, 0U);
    EXPECT_EQ(step.repeated_steps, static_cast<std::uint64_t>(i));
  }
  training.finish();
}

// Covers budgets and windows of any size.
TEST(TensorStash, ABudgetOfAnyNumberOfBytesIsKept) {
  for (const std::uint64_t budget : {std::uint64_t{1} << 62, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    Training training({.budget_bytes = budget, .ahead_bytes = budget, .flight_bytes = budget});
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(training.step(network()).out_bytes, 0U) << budget;
    }
    training.finish();
  }
}

// A source that is never released uses memory although its copy is done.
TEST(TensorStash, AWindowThatIsWiderThanTheStepKeepsTheBudgetAllTheSame) {
  for (const std::uint64_t window : {std::uint64_t{1} << 20, ~std::uint64_t{0}}) {
    Training training({.budget_bytes = 40 * kUnit, .ahead_bytes = window, .flight_bytes = window});
    for (int i = 0; i < 3; ++i) {
      EXPECT_GT(training.step(network()).out_bytes, 0U);
      EXPECT_LE(training.stash().statistics().device_peak_bytes, 40 * kUnit);
    }
    training.finish();
    Training moves_all({.ahead_bytes = window, .flight_bytes = window});
    for (int i = 0; i < 3; ++i) {
      EXPECT_GT(moves_all.step(network()).out_bytes, 30 * kUnit);
    }
    moves_all.finish();
  }
}

class TensorStashBudgets : public ::testing::TestWithParam<std::uint64_t> {};

INSTANTIATE_TEST_SUITE_P(All, TensorStashBudgets, ::testing::Values(0, 36, 40, 44));

// Saved tensors need 45 units, the work of a layer up to 16 more, and the two windows 16 each.
TEST_P(TensorStashBudgets, FromTheSecondStepOnThePlanDecidesAndStays) {
  const std::uint64_t budget = GetParam() * kUnit;
  Training training({.budget_bytes = budget});
  training.step(network());
  const StashStatistics second = training.step(network());
  EXPECT_EQ(second.out_bytes, second.planned_out_bytes);
  for (int i = 0; i < 4; ++i) {
    const StashStatistics later = training.step(network());
    EXPECT_EQ(later.out_bytes, second.out_bytes);
    EXPECT_EQ(later.out_bytes, later.in_bytes);
    EXPECT_EQ(later.left, second.left);
    EXPECT_EQ(later.page_locks, 0U);
    EXPECT_LE(later.fetched_late, 2U);
  }
  const StashStatistics all = training.stash().statistics();
  EXPECT_EQ(all.plans, 1U);
  EXPECT_EQ(all.page_locks_when_repeated, 0U);
  EXPECT_EQ(all.repeated_steps, 5U);
  EXPECT_GT(second.out_bytes, 0U);
  EXPECT_LT(second.out_bytes, kSavedBytes);
  if (budget > 0) {
    EXPECT_LE(all.device_peak_bytes, budget);
    EXPECT_LE(all.planned_peak_bytes, budget);
  }
  EXPECT_GT(all.planned_peak_bytes, 0U);
  training.finish();
}

TEST(TensorStash, ASmallerBudgetMovesMore) {
  std::uint64_t moved = 0;
  for (const std::uint64_t units : {44, 40, 36}) {
    Training training({.budget_bytes = units * kUnit});
    training.step(network());
    const std::uint64_t out = training.step(network()).out_bytes;
    EXPECT_GT(out, moved) << units << " units";
    moved = out;
    training.finish();
  }
}

// The first step already stays within the budget: kept tensors leave, the oldest first.
TEST(TensorStash, TheFirstStepMovesNoMoreThanItHasTo) {
  Training training({.budget_bytes = 60 * kUnit});
  EXPECT_EQ(training.step(network()).out_bytes, 16 * kUnit)
      << "45 units and those in flight exceed the budget by 9";
  EXPECT_LE(training.stash().statistics().device_peak_bytes, 60 * kUnit);
  training.finish();
}

// The first step has more free memory than later steps.
TEST(TensorStash, ThePlanIsMadeForWhatIsInUseInLaterSteps) {
  Training training({.budget_bytes = 80 * kUnit});
  EXPECT_EQ(training.step(network()).out_bytes, 0U);
  training.keep(40 * kUnit);
  training.step(network());
  const StashStatistics planned = training.step(network());
  EXPECT_GT(planned.out_bytes, 0U);
  for (int i = 0; i < 3; ++i) {
    training.take_told_peak();
    EXPECT_EQ(training.step(network()).out_bytes, planned.out_bytes);
    EXPECT_LE(training.take_told_peak(), 80 * kUnit);
  }
  EXPECT_EQ(training.stash().statistics().plans, 2U);
  // The stash also makes a new plan later if the budget is exceeded. Here all tensors that may leave do so,
  // but that does not suffice.
  training.keep(16 * kUnit);
  training.step(network());
  const std::uint64_t exceeded = training.take_told_peak();
  EXPECT_GT(exceeded, 80 * kUnit);
  EXPECT_GT(training.step(network()).out_bytes, planned.out_bytes);
  EXPECT_LT(training.take_told_peak(), exceeded);
  EXPECT_EQ(training.stash().statistics().plans, 3U);
  training.finish();
}

// --- kinds of steps ----------------------------------------------------------------------------------------

TEST(TensorStash, EachKindOfStepHasItsPlan) {
  Chain other = network();
  other.erase(other.begin() + 3, other.begin() + 6);
  Training training({.budget_bytes = 40 * kUnit});
  for (int i = 0; i < 2; ++i) {
    training.step(network());
    training.step(other);
  }
  const StashStatistics learned = training.stash().statistics();
  EXPECT_EQ(learned.plans, 2U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(training.step(network()).page_locks, 0U);
    EXPECT_EQ(training.step(other).page_locks, 0U);
  }
  const StashStatistics all = training.stash().statistics();
  EXPECT_EQ(all.plans, 2U);
  EXPECT_EQ(all.repeated_steps, learned.repeated_steps + 6);
  EXPECT_EQ(all.diverged_steps, learned.diverged_steps);
  training.finish();
}

// One backbone with two heads. At the beginning either kind may follow, and the plan of one kind moves
// nothing.
TEST(TensorStash, KindsThatBeginAlikeKeepTheBudgetInTurns) {
  const Chain large(12, {.bytes = 8 * kUnit});
  Chain small(3, {.bytes = 8 * kUnit});
  small.resize(15, {.bytes = 2 * kUnit});
  Training training({.budget_bytes = 80 * kUnit});
  for (int i = 0; i < 3; ++i) {
    training.step(large);
    training.step(small);
  }
  for (int i = 0; i < 3; ++i) {
    for (const Chain& chain : {large, small}) {
      training.take_told_peak();
      EXPECT_EQ(training.step(chain).page_locks, 0U);
      EXPECT_LE(training.take_told_peak(), 80 * kUnit);
    }
  }
  EXPECT_EQ(training.stash().statistics().repeated_steps, 10U);
  training.finish();
}

TEST(TensorStash, AStepThatGoesOnOtherwiseIsLearned) {
  Training training({.budget_bytes = 40 * kUnit});
  training.step(network());
  Chain longer = network();
  longer[6].bytes += kUnit;
  EXPECT_EQ(training.step(longer).diverged_steps, 1U);
  EXPECT_EQ(training.step(longer).repeated_steps, 1U);
  EXPECT_EQ(training.stash().statistics().plans, 2U);
  training.finish();
}

// The stash remembers eight kinds and replaces the least recently used one.
TEST(TensorStash, TheNinthKindOfStepTakesThePlaceOfTheOldest) {
  const auto kind = [](std::uint64_t number) {
    Chain chain = network();
    chain.front().bytes = (10 + number) * kUnit;
    return chain;
  };
  Training training({.budget_bytes = 40 * kUnit});
  for (std::uint64_t number = 0; number < 9; ++number) {
    training.step(kind(number));
  }
  EXPECT_EQ(training.stash().statistics().repeated_steps, 0U);
  for (std::uint64_t number = 1; number < 9; ++number) {
    EXPECT_EQ(training.step(kind(number)).repeated_steps, number);
  }
  EXPECT_EQ(training.step(kind(0)).repeated_steps, 8U) << "it is learned again";
  EXPECT_EQ(training.step(kind(0)).repeated_steps, 9U);
  training.finish();
}

// A program that drops no handle has no end of a step. The record of its step stays bounded.
TEST(TensorStash, AStepOfTooManyTensorsIsCutOff) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 16;
  TensorStash stash(make_host_stash_backend(), {.budget_bytes = kMost * kUnit});
  const std::vector<unsigned char> source(1);
  std::vector<StashHandle> handles;
  const auto put = [&] {
    const AddressRange range{.begin = reinterpret_cast<std::uintptr_t>(source.data()), .bytes = 1};
    handles.push_back(stash.put({.source = range, .contents = {.storage = handles.size()}}, 0).handle);
  };
  while (handles.size() < kMost) {
    put();
  }
  EXPECT_EQ(stash.statistics().steps, 0U);
  put();
  EXPECT_EQ(stash.statistics().steps, 1U);
  EXPECT_EQ(stash.read(handles.front(), nullptr, 0).place, StashPlace::kInPlace);
  for (const StashHandle handle : handles) {
    stash.drop(handle);
  }
  EXPECT_EQ(stash.statistics().live_handles, 0U);
  EXPECT_EQ(stash.statistics().steps, 2U) << "the last tensor ended the second step";
}

TEST(TensorStash, AfterForgetTheNextStepIsAFirstOne) {
  Training training({.budget_bytes = 60 * kUnit});
  training.step(network());
  training.stash().forget();
  EXPECT_EQ(training.stash().learned_step(), "");
  training.step(network());
  EXPECT_EQ(training.stash().statistics().repeated_steps, 0U);
  EXPECT_EQ(training.stash().statistics().plans, 2U);
  training.finish();
}

// --- host memory -------------------------------------------------------------------------------------------

TEST(TensorStash, WithoutHostMemoryTensorsStay) {
  Training training({.host_bytes = 20 * kUnit});
  for (int i = 0; i < 3; ++i) {
    const StashStatistics step = training.step(network());
    EXPECT_GT(step.refused, 0U);
    EXPECT_GT(step.out_bytes, 0U);
    EXPECT_LE(step.host_peak_bytes, 20 * kUnit);
  }
  training.finish();
}

// If host memory is less than a step needs, the same tensors stay on the device each time. The stash unlocks
// no pages for other tensors.
TEST(TensorStash, ARepeatedStepLocksNoPageWhereHostMemoryIsTooSmall) {
  for (const std::uint64_t host_units : {5, 9, 11, 20, 23, 30}) {
    SCOPED_TRACE(host_units);
    Training training({.host_bytes = host_units * kUnit});
    training.step(network());
    const std::uint64_t moved = training.step(network()).out_bytes;
    EXPECT_GT(moved, 0U);
    for (int i = 0; i < 4; ++i) {
      const StashStatistics later = training.step(network());
      EXPECT_EQ(later.page_locks, 0U);
      EXPECT_EQ(later.out_bytes, moved);
      EXPECT_GT(later.refused, 0U);
    }
    EXPECT_EQ(training.stash().statistics().page_locks_when_repeated, 0U);
    training.finish();
  }
}

// A second kind of step takes over the memory; the two kinds do not pass it back and forth.
TEST(TensorStash, KindsOfStepsDoNotUnlockEachOthersMemory) {
  Chain other = network();
  for (ChainLayer& layer : other) {
    layer.bytes = layer.bytes * 5 / 4;
  }
  Training training({.host_bytes = 30 * kUnit});
  for (int i = 0; i < 3; ++i) {
    training.step(network());
    training.step(other);
  }
  const std::uint64_t locks = training.stash().statistics().page_locks;
  for (int i = 0; i < 4; ++i) {
    EXPECT_GT(training.step(network()).out_bytes, 0U);
    EXPECT_GT(training.step(other).out_bytes, 0U);
  }
  EXPECT_EQ(training.stash().statistics().page_locks, locks);
  // A kind that continues alone gets all of the memory.
  training.step(other);
  training.step(other);
  EXPECT_GT(training.step(other).out_bytes, 20 * kUnit);
  training.finish();
}

// The backend refuses to page-lock more than the permitted bytes, and counts the bytes that it has locked.
struct SystemLocks {
  std::uint64_t limit_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t refusals = 0;
};

class LimitedStashBackend final : public ForwardingStashBackend {
 public:
  // `locks` must outlive the backend.
  LimitedStashBackend(std::unique_ptr<StashBackend> target, SystemLocks& locks)
      : ForwardingStashBackend(std::move(target)), locks_(locks) {}

  AddressRange allocate_host(std::uint64_t bytes) override {
    if (locks_.bytes + bytes > locks_.limit_bytes) {
      ++locks_.refusals;
      throw OutOfMemory("page-locked memory", {.asked = bytes});
    }
    const AddressRange block = ForwardingStashBackend::allocate_host(bytes);
    locks_.bytes += bytes;
    locks_.peak_bytes = std::max(locks_.peak_bytes, locks_.bytes);
    return block;
  }
  void free_host(AddressRange block) override {
    locks_.bytes -= block.bytes;
    ForwardingStashBackend::free_host(block);
  }

 private:
  SystemLocks& locks_;
};

Training::Wrap limited_by(SystemLocks& locks) {
  return [&locks](std::unique_ptr<StashBackend> target) {
    return std::make_unique<LimitedStashBackend>(std::move(target), locks);
  };
}

Chain chain_of(const std::vector<std::uint64_t>& units) {
  Chain chain;
  for (const std::uint64_t each : units) {
    chain.push_back({.bytes = each * kUnit});
  }
  return chain;
}

constexpr std::uint64_t kAmpleHostBytes = 1000 * kUnit;

// In each repetition the same tensors stay, and no page is locked during or between the steps. Before, each
// repetition unlocked and locked the block of 8 units.
void expect_settled_under_limit(const Chain& chain, std::uint64_t limit_bytes, const StashOptions& options) {
  constexpr int kStepsToSettle = 4;
  SystemLocks system{.limit_bytes = limit_bytes};
  Training training(options, limited_by(system));
  for (int i = 0; i < kStepsToSettle; ++i) {
    training.step(chain);
  }
  const StashStatistics settled = training.step(chain);
  const std::uint64_t locks = training.stash().statistics().page_locks;
  for (int i = 0; i < 30; ++i) {
    const StashStatistics later = training.step(chain);
    EXPECT_EQ(later.out_bytes, settled.out_bytes);
    EXPECT_EQ(later.refused, settled.refused);
    EXPECT_EQ(later.page_locks_when_repeated, settled.page_locks_when_repeated);
  }
  EXPECT_EQ(training.stash().statistics().page_locks, locks);
  EXPECT_LE(system.peak_bytes, limit_bytes);
  training.finish();
  EXPECT_EQ(system.bytes, 0U);
}

TEST(TensorStash, ARepeatedStepLocksNoPageWhereTheSystemPermitsFew) {
  SystemLocks system{.limit_bytes = 9 * kUnit};
  Training training({.host_bytes = kAmpleHostBytes, .flight_bytes = 0}, limited_by(system));
  const Chain chain = chain_of({1, 8, 1, 1});
  training.step(chain);
  training.step(chain);
  const std::uint64_t refusals = system.refusals;
  for (int i = 0; i < 64; ++i) {
    const StashStatistics step = training.step(chain);
    EXPECT_EQ(step.out_bytes, 9 * kUnit);
    EXPECT_GT(step.refused, 0U);
    EXPECT_EQ(step.page_locks + step.page_locks_when_repeated, 0U);
  }
  EXPECT_LE(system.refusals - refusals, 7U) << "the stash asks again ever more rarely";
  EXPECT_THAT(training.stash().take_notice(1000), ::testing::HasSubstr("the system refused to page-lock"));
  training.finish();
  EXPECT_EQ(system.bytes, 0U);
}

TEST(TensorStash, ARepeatedStepSettlesUnderAnyLimitOfTheSystem) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300 && !::testing::Test::HasFailure(); ++trial) {
    std::vector<std::uint64_t> units(3 + random() % 10);
    std::ranges::generate(units, [&random] { return 1 + random() % (random() % 2 == 0 ? 4 : 24); });
    const std::uint64_t limit_bytes = random() % (64 * kUnit);
    const StashOptions options{.budget_bytes = random() % 2 == 0 ? 0 : 40 * kUnit,
                               .host_bytes = (random() % 4 == 0 ? 40 : 1000) * kUnit,
                               .release_at_put = random() % 3 == 0};
    SCOPED_TRACE(::testing::PrintToString(units) + ", limit " + std::to_string(limit_bytes) + ", budget " +
                 std::to_string(options.budget_bytes) + ", host " + std::to_string(options.host_bytes));
    expect_settled_under_limit(chain_of(units), limit_bytes, options);
  }
}

// Two kinds in turns, which differ in the sizes of all tensors.
TEST(TensorStash, KindsOfStepsSettleUnderALimitOfTheSystem) {
  const Chain other = chain_of({10, 10, 10, 5, 5, 5, 3, 3, 3, 2, 2, 2});
  for (const std::uint64_t units : {5, 9, 20, 30, 40}) {
    SCOPED_TRACE(units);
    SystemLocks system{.limit_bytes = units * kUnit};
    Training training({.host_bytes = kAmpleHostBytes}, limited_by(system));
    for (int i = 0; i < 4; ++i) {
      training.step(network());
      training.step(other);
    }
    const std::uint64_t locks = training.stash().statistics().page_locks;
    for (int i = 0; i < 20; ++i) {
      training.step(network());
      training.step(other);
    }
    EXPECT_EQ(training.stash().statistics().page_locks, locks);
    EXPECT_LE(system.peak_bytes, system.limit_bytes);
    training.finish();
  }
}

// The step then moves as much as if the system had never refused.
TEST(TensorStash, MemoryThatTheSystemPermitsAgainIsUsed) {
  for (const std::uint64_t host_bytes : {20 * kUnit, kAmpleHostBytes}) {
    Training usual({.host_bytes = host_bytes});
    usual.step(network());
    const std::uint64_t moved = usual.step(network()).out_bytes;
    usual.finish();
    for (const std::uint64_t units : {0, 1, 7, 9, 17, 19}) {
      for (const int limited_steps : {1, 2, 8}) {
        SCOPED_TRACE(std::to_string(units) + " units for " + std::to_string(limited_steps) + " steps");
        SystemLocks system{.limit_bytes = units * kUnit};
        Training training({.host_bytes = host_bytes}, limited_by(system));
        for (int i = 0; i < limited_steps; ++i) {
          EXPECT_LT(training.step(network()).out_bytes, moved);
        }
        system.limit_bytes = kAmpleHostBytes;
        for (int i = 0; i < limited_steps + 2; ++i) {
          training.step(network());
        }
        const StashStatistics later = training.step(network());
        EXPECT_EQ(later.out_bytes, moved);
        EXPECT_EQ(later.page_locks, 0U);
        training.finish();
      }
    }
  }
}

// Saves tensors of one size, reads and drops them in the reverse order.
void run_step(TensorStash& stash, std::size_t tensors, std::uint64_t bytes) {
  static std::uint64_t storages = 0;
  std::vector<std::vector<unsigned char>> memory(tensors, std::vector<unsigned char>(bytes));
  std::vector<StashHandle> handles;
  for (std::vector<unsigned char>& source : memory) {
    source.assign(bytes, static_cast<unsigned char>(handles.size()));
    handles.push_back(
        stash
            .put({.source = {.begin = reinterpret_cast<std::uintptr_t>(source.data()), .bytes = bytes},
                  .contents = {.storage = ++storages}},
                 0)
            .handle);
  }
  std::vector<bool> is_away(tensors);
  for (const StashHandle handle : stash.released(nullptr, tensors)) {
    const std::size_t index = handle - handles.front();
    is_away[index] = true;
    std::ranges::fill(memory[index], 0xff);
  }
  for (std::size_t i = tensors; i-- > 0;) {
    const ReadAnswer read = stash.read(handles[i], nullptr, 0);
    for (const DueFetch& due :
         read.has_fetches ? stash.fetches(handles[i], tensors) : std::vector<DueFetch>()) {
      stash.fetch(due.handle, reinterpret_cast<std::uintptr_t>(memory[due.handle - handles.front()].data()),
                  nullptr);
    }
    if (read.place == StashPlace::kMissing) {
      stash.ready(handles[i], nullptr);
    }
    ASSERT_EQ(std::ranges::count(memory[i], static_cast<unsigned char>(i)), std::ssize(memory[i]));
    stash.drop(handles[i]);
  }
}

// With images of varying sizes, each step differs from the others.
TEST(TensorStash, StepsOfChangingSizesShareHostMemory) {
  constexpr std::size_t kTensors = 12;
  constexpr std::uint64_t kLargest = std::uint64_t{64} * 512;
  constexpr int kSteps = 400;
  TensorStash stash(make_host_stash_backend(), {.host_bytes = std::uint64_t{1} << 30});
  std::mt19937 random(1);
  std::uint64_t locks_before = 0;
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_NO_FATAL_FAILURE(run_step(stash, kTensors, 64 * (64 + random() % 448)));
    EXPECT_LE(stash.statistics().host_bytes, 3 * kTensors * kLargest);
    locks_before = i < kSteps / 2 ? stash.statistics().page_locks : locks_before;
  }
  EXPECT_GT(stash.statistics().left, kSteps * kTensors / 2U);
  EXPECT_LT(stash.statistics().page_locks - locks_before, kSteps / 4U)
      << "with exact sizes nearly every step locks pages";
  // If all following steps are smaller, the memory is released, except that of kinds that repeated by chance.
  for (int i = 0; i < 400; ++i) {
    ASSERT_NO_FATAL_FAILURE(run_step(stash, kTensors, 1000));
  }
  EXPECT_LE(stash.statistics().host_bytes, kTensors * kLargest / 3);
}

// --- notices -----------------------------------------------------------------------------------------------

constexpr std::size_t kRoomForANotice = 1000;

TEST(TensorStashNotices, AnExhaustedHostBudgetIsToldOnce) {
  Training training({.host_bytes = 20 * kUnit});
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(training.step(network()).refused, 1U);
    const std::string notice = training.stash().take_notice(kRoomForANotice);
    if (i == 0) {
      EXPECT_THAT(notice, ::testing::HasSubstr("host budget of 5 KiB (5120 bytes) is exhausted"));
    } else {
      EXPECT_EQ(notice, "");
    }
  }
  training.finish();
}

// The notice is given with the plan that knows the bytes in use of later steps, not with the first plan.
TEST(TensorStashNotices, ABudgetThatCannotBeKeptIsToldOnceWithWhatIsNeeded) {
  Training training({.budget_bytes = 4 * kUnit});
  for (int i = 0; i < 4; ++i) {
    training.step(network());
    const StashStatistics now = training.stash().statistics();
    EXPECT_GT(now.planned_peak_bytes, 4 * kUnit);
    const std::string notice = training.stash().take_notice(kRoomForANotice);
    if (i == 1) {
      EXPECT_THAT(notice, ::testing::HasSubstr("budget of 1 KiB"));
      EXPECT_THAT(notice, ::testing::HasSubstr("(" + std::to_string(now.planned_peak_bytes) + " bytes)"));
    } else {
      EXPECT_EQ(notice, "");
    }
  }
  training.finish();
}

TEST(TensorStashNotices, NothingIsToldWhereBudgetsAreKept) {
  Training training({.budget_bytes = 40 * kUnit});
  for (int i = 0; i < 3; ++i) {
    training.step(network());
    EXPECT_EQ(training.stash().take_notice(kRoomForANotice), "");
  }
  EXPECT_LE(training.stash().statistics().planned_peak_bytes, 40 * kUnit);
  training.finish();
}

TEST(TensorStashNotices, ATextThatHasNoRoomStays) {
  Training training({.host_bytes = 20 * kUnit});
  training.step(network());
  const std::string text = training.stash().take_notice(0);
  EXPECT_NE(text, "");
  EXPECT_EQ(training.stash().take_notice(text.size()), text) << "no room for the terminating zero";
  EXPECT_EQ(training.stash().take_notice(text.size() + 1), text);
  EXPECT_EQ(training.stash().take_notice(kRoomForANotice), "");
  training.finish();
}

// --- one handle at a time ----------------------------------------------------------------------------------

// A stash on the host with delays, so that a copy is still in flight unless a call waits for it.
class StashOnHost : public ::testing::Test {
 protected:
  using Bytes = std::vector<unsigned char>;

  explicit StashOnHost() : stash_(make_host_stash_backend(1), {.ahead_bytes = 2000, .flight_bytes = 0}) {}

  static AddressRange range_of(const Bytes& bytes) {
    return {.begin = reinterpret_cast<std::uintptr_t>(bytes.data()), .bytes = bytes.size()};
  }
  PutAnswer put(const Bytes& bytes, std::uint64_t storage) {
    return stash_.put({.source = range_of(bytes), .contents = {.storage = storage}}, 0);
  }
  // Releases the source; other data overwrites its memory.
  void release(Bytes& bytes) {
    EXPECT_EQ(stash_.released(nullptr, 10).size(), 1U);
    std::ranges::fill(bytes, 0xff);
  }
  Bytes fetch(StashHandle handle, std::uint64_t bytes) {
    Bytes target(bytes);
    stash_.fetch(handle, range_of(target).begin, nullptr);
    stash_.ready(handle, nullptr);
    return target;
  }

  const Bytes source_ = Bytes(1000, 7);  // outlives the stash, whose copies may be in flight when a test ends
  TensorStash stash_;
};

TEST_F(StashOnHost, ATensorLeavesAndComesBack) {
  Bytes source(1000, 7);
  const PutAnswer put_answer = put(source, 1);
  EXPECT_EQ(put_answer.verdict, StashVerdict::kLeaves);
  EXPECT_TRUE(put_answer.has_released);
  release(source);
  const ReadAnswer read = stash_.read(put_answer.handle, nullptr, 0);
  EXPECT_EQ(read.place, StashPlace::kMissing);
  EXPECT_TRUE(read.has_fetches);
  EXPECT_TRUE(read.last);
  EXPECT_EQ(fetch(put_answer.handle, 1000), Bytes(1000, 7));
  stash_.drop(put_answer.handle);
  EXPECT_EQ(stash_.statistics().live_handles, 0U);
}

// A retained graph has several passes, and each one fetches again.
TEST_F(StashOnHost, ATensorIsReadInEachPass) {
  Bytes source(1000, 7);
  const StashHandle handle = put(source, 1).handle;
  release(source);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(stash_.read(handle, nullptr, 0).place, StashPlace::kMissing);
    EXPECT_EQ(fetch(handle, 1000), Bytes(1000, 7));
  }
  EXPECT_EQ(stash_.statistics().out_bytes, 1000U);
  EXPECT_EQ(stash_.statistics().in_bytes, 3000U);
  stash_.drop(handle);
}

TEST_F(StashOnHost, ASharedTensorIsCopiedOnceAndStaysUntilItsLastReader) {
  Bytes source(1000, 7);
  const StashHandle handle = put(source, 1).handle;
  EXPECT_EQ(put(source, 1).verdict, StashVerdict::kShared);
  release(source);
  const ReadAnswer first = stash_.read(handle, nullptr, 0);
  EXPECT_FALSE(first.last);
  const Bytes target = fetch(handle, 1000);
  const ReadAnswer second = stash_.read(handle, nullptr, 0);
  EXPECT_EQ(second.place, StashPlace::kBack);
  EXPECT_TRUE(second.last);
  EXPECT_EQ(target, Bytes(1000, 7));
  stash_.drop(handle);
  EXPECT_EQ(stash_.statistics().live_handles, 1U);
  stash_.drop(handle);
  EXPECT_EQ(stash_.statistics().live_handles, 0U);
  EXPECT_EQ(stash_.statistics().out_bytes, 1000U);
}

// While a copy is in flight, the source still exists.
TEST(TensorStashInFlight, IsReadInPlace) {
  TensorStash stash(make_host_stash_backend(1), {.flight_bytes = 10000});
  std::vector<unsigned char> source(1000, 7);
  const PutAnswer put = stash.put(
      {.source = {.begin = reinterpret_cast<std::uintptr_t>(source.data()), .bytes = 1000}, .contents = {}},
      0);
  EXPECT_EQ(put.verdict, StashVerdict::kLeaves);
  EXPECT_FALSE(put.has_released);
  EXPECT_EQ(stash.read(put.handle, nullptr, 0).place, StashPlace::kInPlace);
  // The caller may free the source now, since drop() has waited for the copy.
  stash.drop(put.handle);
  std::ranges::fill(source, 0xff);
}

// A tensor that the program keeps alive need not be fetched, so it does not leave again.
TEST_F(StashOnHost, WhatOthersHoldStaysInLaterSteps) {
  Bytes held(1000, 7);
  Bytes other(1000, 8);
  for (int step = 0; step < 3; ++step) {
    const StashHandle first = put(held, 1).handle;
    const StashHandle second = put(other, 2).handle;
    stash_.released(nullptr, 10);
    EXPECT_EQ(stash_.read(second, nullptr, 0, true).place, StashPlace::kInPlace);
    EXPECT_EQ(stash_.read(first, nullptr, 0, true).place, StashPlace::kInPlace);
    stash_.drop(first);
    stash_.drop(second);
  }
  EXPECT_EQ(stash_.statistics().left, 2U);
  EXPECT_EQ(stash_.statistics().in_bytes, 0U);
}

TEST_F(StashOnHost, HandlesOutliveTheirStep) {
  Bytes source(1000, 7);
  const StashHandle handle = put(source, 1).handle;
  release(source);
  stash_.end_step();
  Bytes next(500, 9);
  const StashHandle later = put(next, 2).handle;
  stash_.read(handle, nullptr, 0);
  EXPECT_EQ(fetch(handle, 1000), Bytes(1000, 7));
  stash_.drop(later);
  EXPECT_EQ(stash_.statistics().steps, 2U);
  stash_.drop(handle);
  EXPECT_EQ(stash_.statistics().steps, 2U);
}

// A network of two layers and the output of a metric. The program replaces the output after its next forward
// pass.
class KeptFromStepToStep : public StashOnHost {
 protected:
  PutAnswer save(std::uint64_t signature) {
    return stash_.put(
        {.source = range_of(source_), .contents = {.storage = ++storage_}, .signature = signature}, 0);
  }
  void read(StashHandle handle) {
    stash_.read(handle, nullptr, 0);
    stash_.drop(handle);
  }
  // With `keeps`, the third tensor becomes `kept_`; otherwise the program reads and drops it.
  void step(bool keeps) {
    const StashHandle first = save(1).handle;
    const StashHandle second = save(2).handle;
    const StashHandle metric = save(3).handle;
    if (kept_ != 0) {
      stash_.drop(kept_);
    }
    kept_ = keeps ? metric : 0;
    if (!keeps) {
      read(metric);
    }
    read(second);
    read(first);
  }

  std::uint64_t storage_ = 0;
  StashHandle kept_ = 0;
};

TEST_F(KeptFromStepToStep, StepsEndAndAreLearned) {
  for (int i = 0; i < 10; ++i) {
    step(true);
  }
  // The stash needs four steps to see the repetition; the fourth is the first that it learns.
  EXPECT_EQ(stash_.statistics().steps, 7U);
  EXPECT_EQ(stash_.statistics().repeated_steps, 6U);
  EXPECT_EQ(stash_.statistics().live_handles, 1U);
}

// After four steps that keep the tensor, the program reads and drops it within the step. Steps then end with
// that drop again.
TEST_F(KeptFromStepToStep, StepsEndWithTheDropOnceTheTensorIsRead) {
  for (int i = 0; i < 4; ++i) {
    step(true);
  }
  step(false);
  const std::uint64_t steps = stash_.statistics().steps;
  for (int i = 0; i < 4; ++i) {
    step(false);
    EXPECT_EQ(stash_.statistics().live_handles, 0U);
  }
  EXPECT_EQ(stash_.statistics().steps, steps + 4);
}

TEST_F(StashOnHost, AHandleThatIsNotAliveIsRefused) {
  EXPECT_THROW(stash_.drop(1), InvalidArgument);
  Bytes source(1000, 7);
  const StashHandle handle = put(source, 1).handle;
  EXPECT_THROW(stash_.ready(handle, nullptr), InvalidArgument) << "the tensor was not fetched";
  EXPECT_THROW(stash_.put({.source = {.begin = 1, .bytes = 0}}, 0), InvalidArgument);
  stash_.drop(handle);
  EXPECT_THROW(stash_.read(handle, nullptr, 0), InvalidArgument);
  EXPECT_THROW(stash_.fetches(handle, 10), InvalidArgument);
}

// --- times -------------------------------------------------------------------------------------------------

// A stream waits for a copy that follows two seconds of work. In some orders of the device, the wait begins
// later.
std::uint64_t waited_nanoseconds(bool timed, std::uint64_t seed) {
  const auto clock = std::make_shared<double>(0);
  const auto cuda = std::make_shared<FakeCuda>(FakeCudaOptions{.seed = seed, .clock = clock});
  cuda->set_device(0);
  CudaStream producer = nullptr;
  CudaStream consumer = nullptr;
  cuda->stream_create(producer);
  cuda->stream_create(consumer);
  std::uint64_t memory = 0;
  cuda->malloc(memory, 1000);
  TensorStash stash(make_cuda_stash_backend(0, timed, cuda), {.flight_bytes = 0});
  FakeCuda::launch(producer, [clock] { *clock += 2; });
  const StashHandle handle =
      stash.put({.source = {.begin = memory, .bytes = 1000}, .stream = producer}, 0).handle;
  EXPECT_EQ(stash.released(consumer, 1).size(), 1U);
  stash.drop(handle);
  cuda->device_synchronize();
  cuda->free(memory);
  cuda->stream_destroy(producer);
  cuda->stream_destroy(consumer);
  return stash.statistics().wait_nanoseconds;
}

TEST(TensorStashTimes, WaitsAreMeasuredOnRequest) {
  std::uint64_t longest = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    longest = std::max(longest, waited_nanoseconds(true, seed));
    EXPECT_EQ(waited_nanoseconds(false, seed), 0U);
  }
  EXPECT_EQ(longest, 2'000'000'000U);
}

// --- on CUDA -----------------------------------------------------------------------------------------------

// Tensors of 1000 bytes on a fake GPU, and a stream of the program.
class StashOnCuda : public ::testing::Test {
 protected:
  StashOnCuda() {
    cuda_->set_device(0);
    cuda_->stream_create(stream_);
    cuda_->stream_create(side_);
    cuda_->malloc(memory_, kTensors * kBytes);
  }
  ~StashOnCuda() override {
    cuda_->device_synchronize();
    EXPECT_THAT(cuda_->misuses(), ::testing::IsEmpty());
    for (const SimFinding& finding : cuda_->findings()) {
      ADD_FAILURE() << finding.text;
    }
  }

  void make(const StashOptions& options, bool timed = false) {
    stash_.emplace(make_cuda_stash_backend(0, timed, cuda_), options);
  }
  std::uint64_t address(std::uint64_t number) const { return memory_ + kBytes * number; }
  PutAnswer put(std::uint64_t number, CudaStream stream) {
    return stash_->put({.source = {.begin = address(number), .bytes = kBytes},
                        .stream = stream,
                        .contents = {.storage = number}},
                       0);
  }
  // Fetches into the memory of tensor `target`.
  void fetch(StashHandle handle, std::uint64_t target, CudaStream stream) {
    ASSERT_EQ(stash_->read(handle, stream, 0).place, StashPlace::kMissing);
    stash_->fetch(handle, address(target), stream);
  }
  void begin_capture() { ASSERT_EQ(cuda_->stream_begin_capture(stream_), CudaStatus::kSuccess); }
  void expect_capture_is_whole() {
    CudaGraph graph = nullptr;
    EXPECT_EQ(cuda_->stream_end_capture(graph, stream_), CudaStatus::kSuccess);
    cuda_->graph_destroy(graph);
  }
  std::uint64_t calls_of(const std::function<void()>& what) const {
    const std::uint64_t before = cuda_->calls();
    what();
    return cuda_->calls() - before;
  }

  static constexpr std::uint64_t kBytes = 1000;
  static constexpr std::uint64_t kTensors = 8;
  const std::shared_ptr<FakeCuda> cuda_ = std::make_shared<FakeCuda>();
  CudaStream stream_ = nullptr;
  CudaStream side_ = nullptr;
  std::uint64_t memory_ = 0;
  std::optional<TensorStash> stash_;
};

// The program captures a CUDA graph while it uses the stash. No work of the stash becomes part of the graph,
// and no call ends the capture.
class StashCaptures : public StashOnCuda {};

TEST_F(StashCaptures, TensorsStayAndNothingIsFetched) {
  make({.flight_bytes = 0});
  const StashHandle away = put(0, stream_).handle;
  stash_->released(stream_, 1);
  begin_capture();
  EXPECT_EQ(put(1, stream_).verdict, StashVerdict::kKept);
  EXPECT_EQ(stash_->statistics().refused, 0U) << "host memory suffices";
  EXPECT_THROW(stash_->read(away, stream_, 0), CaptureConflict);
  EXPECT_THROW(stash_->fetch(away, address(2), stream_), CaptureConflict);
  expect_capture_is_whole();
  fetch(away, 2, stream_);
  stash_->ready(away, stream_);
}

TEST_F(StashCaptures, SourcesAreReleasedAfterwards) {
  make({.flight_bytes = 1500});
  const StashHandle first = put(0, stream_).handle;
  begin_capture();
  EXPECT_TRUE(put(1, stream_).has_released);
  EXPECT_THAT(stash_->released(stream_, 4), ::testing::IsEmpty());
  EXPECT_EQ(stash_->read(first, stream_, 0).place, StashPlace::kInPlace);
  expect_capture_is_whole();
  EXPECT_THAT(stash_->released(stream_, 4), ::testing::ElementsAre(first));
}

// The other stream waits for the copy. Since the producing stream is captured, the host waits in place of
// that stream.
TEST_F(StashCaptures, SourcesOfACapturedStreamAreReleasedOnAnother) {
  make({.flight_bytes = 1500});
  const StashHandle first = put(0, stream_).handle;
  begin_capture();
  put(1, side_);
  EXPECT_THAT(stash_->released(side_, 4), ::testing::ElementsAre(first));
  expect_capture_is_whole();
}

TEST_F(StashCaptures, DropsLeaveTheHostToWait) {
  make({.ahead_bytes = 0, .flight_bytes = 1500});
  const StashHandle in_flight = put(0, stream_).handle;
  const StashHandle fetched = put(1, stream_).handle;
  ASSERT_THAT(stash_->released(stream_, 4), ::testing::ElementsAre(in_flight));
  fetch(in_flight, 2, stream_);
  begin_capture();
  stash_->drop(in_flight);  // its fetch is in flight
  stash_->drop(fetched);    // its copy out is in flight
  const std::vector<Access> writes = {{.range = {.begin = address(1), .bytes = 2 * kBytes}, .version = 1}};
  FakeCuda::launch(side_, [] {}, {.name = "the next owner", .writes = writes});
  expect_capture_is_whole();
}

TEST_F(StashCaptures, FetchesAreNotAwaited) {
  make({.ahead_bytes = 0, .flight_bytes = 0});
  const StashHandle handle = put(0, stream_).handle;
  put(0, stream_);  // two readers
  stash_->released(stream_, 4);
  fetch(handle, 2, stream_);
  begin_capture();
  EXPECT_THROW(stash_->ready(handle, stream_), CaptureConflict);
  EXPECT_THROW(stash_->read(handle, stream_, 0), CaptureConflict);
  expect_capture_is_whole();
  stash_->ready(handle, stream_);
  begin_capture();
  EXPECT_EQ(stash_->read(handle, stream_, 0).place, StashPlace::kBack) << "the stream has already waited";
  expect_capture_is_whole();
}

TEST_F(StashCaptures, ReadsAskForNoFetchesAhead) {
  make({.ahead_bytes = 2 * kBytes, .flight_bytes = 0});
  for (int step = 0; step < 2; ++step) {
    std::vector<StashHandle> handles;
    for (std::uint64_t number = 0; number < 3; ++number) {
      handles.push_back(put(number, stream_).handle);
      stash_->released(stream_, 4);
    }
    if (step == 1) {
      begin_capture();
      EXPECT_FALSE(stash_->read(handles[2], stream_, 0, true).has_fetches);
      expect_capture_is_whole();
      EXPECT_TRUE(stash_->read(handles[2], stream_, 0, true).has_fetches);
    } else {
      for (std::size_t i = handles.size(); i-- > 0;) {
        stash_->read(handles[i], stream_, 0, i == 2);
      }
    }
    for (const StashHandle handle : handles) {
      stash_->drop(handle);
    }
  }
}

TEST_F(StashCaptures, KeptTensorsDoNotLeave) {
  make({.budget_bytes = kBytes, .flight_bytes = 0});
  const StashHandle of_captured = put(0, stream_).handle;
  const StashHandle of_side = put(1, side_).handle;
  begin_capture();
  ASSERT_THAT(stash_->leaving(4), ::testing::ElementsAre(of_captured, of_side));
  EXPECT_EQ(stash_->leave(of_captured, side_).verdict, StashVerdict::kKept);
  EXPECT_EQ(stash_->leave(of_side, stream_).verdict, StashVerdict::kKept);
  EXPECT_EQ(stash_->leave(of_side, side_).verdict, StashVerdict::kLeaves);
  expect_capture_is_whole();
}

// A program destroys a stream while tensors that were put or fetched on it are alive.
class StashStreams : public StashOnCuda {
 protected:
  // CUDA may reuse the handle for another stream; here it stays unused.
  void destroy_side() {
    cuda_->device_synchronize();
    cuda_->stream_destroy(side_);
  }
};

TEST_F(StashStreams, SourcesOfADestroyedStreamAreReleased) {
  make({.flight_bytes = 1500});
  const StashHandle first = put(0, side_).handle;
  const StashHandle second = put(1, side_).handle;
  destroy_side();
  EXPECT_THAT(stash_->released(stream_, 4), ::testing::ElementsAre(first));
  stash_->drop(second);
  EXPECT_EQ(put(2, stream_).verdict, StashVerdict::kLeaves) << "the device is not lost";
  stash_->drop(first);
}

TEST_F(StashStreams, TargetsOfADestroyedStreamAreReleased) {
  make({.ahead_bytes = 0, .flight_bytes = 0});
  const StashHandle handle = put(0, stream_).handle;
  stash_->released(stream_, 4);
  fetch(handle, 2, side_);
  destroy_side();
  stash_->ready(handle, stream_);
  stash_->drop(handle);
}

TEST_F(StashStreams, KeptTensorsOfADestroyedStreamStay) {
  make({.budget_bytes = kBytes, .flight_bytes = 0});
  const StashHandle first = put(0, side_).handle;
  const StashHandle second = put(1, stream_).handle;
  destroy_side();
  ASSERT_THAT(stash_->leaving(4), ::testing::ElementsAre(first, second));
  EXPECT_EQ(stash_->leave(first, stream_).verdict, StashVerdict::kKept);
  EXPECT_EQ(stash_->leave(second, stream_).verdict, StashVerdict::kLeaves);
}

// Streams whose identities the test chooses.
class NamedStreams final : public ForwardingStashBackend {
 public:
  NamedStreams(std::uint64_t& id, std::uint64_t& asked)
      : ForwardingStashBackend(make_host_stash_backend()), id_(id), asked_(asked) {}

  std::uint64_t stream_id(StreamHandle) override {
    ++asked_;
    return id_;
  }

 private:
  std::uint64_t& id_;
  std::uint64_t& asked_;
};

// CUDA may reuse the handle of a destroyed stream for another stream.
TEST(TensorStashStreams, AReusedStreamHandleIsNotMistakenForTheEarlierStream) {
  std::uint64_t id = 1;
  std::uint64_t asked = 0;
  std::vector<unsigned char> bytes(1000);
  TensorStash stash(std::make_unique<NamedStreams>(id, asked), {.budget_bytes = 1, .flight_bytes = 0});
  auto put = [&, storage = std::uint64_t{0}]() mutable {
    return stash
        .put({.source = {.begin = reinterpret_cast<std::uintptr_t>(bytes.data()), .bytes = 1000},
              .contents = {.storage = ++storage}},
             0)
        .handle;
  };
  const StashHandle of_first = put();
  const StashHandle also_of_first = put();
  EXPECT_EQ(asked, 1U);
  EXPECT_EQ(stash.leave(of_first, nullptr).verdict, StashVerdict::kLeaves);
  id = 2;  // NOLINT(clang-analyzer-deadcode.DeadStores): the backend refers to it
  EXPECT_EQ(stash.leave(also_of_first, nullptr).verdict, StashVerdict::kKept);
  EXPECT_EQ(stash.leave(put(), nullptr).verdict, StashVerdict::kLeaves)
      << "this tensor belongs to the second stream";
}

// --- costs on CUDA -----------------------------------------------------------------------------------------

// Calls of the driver, with the numbers in docs/torch.md.
class StashCalls : public StashOnCuda {
 protected:
  struct Calls {
    std::uint64_t out = 0;
    std::uint64_t back = 0;
  };

  // The calls of a step in which two of three tensors leave and come back ahead of their readers. The host
  // waits for each step, like a program that prints its loss.
  Calls step() {
    Calls calls;
    std::vector<StashHandle> handles;
    for (std::uint64_t number = 0; number < kSaved; ++number) {
      calls.out += calls_of([&] {
        handles.push_back(put(number, stream_).handle);
        stash_->released(stream_, kSaved);
      });
    }
    for (; !handles.empty(); handles.pop_back()) {
      calls.back += calls_of([&] { read_and_drop(handles.back()); });
    }
    cuda_->device_synchronize();
    return calls;
  }

  void read_and_drop(StashHandle handle) {
    const ReadAnswer answer = stash_->read(handle, stream_, 0);
    if (answer.has_fetches) {
      for (const DueFetch& due : stash_->fetches(handle, kTensors)) {
        stash_->fetch(due.handle, address(kSaved + due.handle % kSaved), stream_);
      }
    }
    if (answer.place == StashPlace::kMissing) {
      stash_->ready(handle, stream_);
    }
    stash_->drop(handle);
  }

  // The calls of a step after the stash has made its events.
  Calls steady_step(bool timed) {
    make({.ahead_bytes = 1, .flight_bytes = 0}, timed);
    for (int i = 0; i < 100; ++i) {
      step();
    }
    const StashStatistics before = stash_->statistics();
    Calls sum;
    for (int i = 0; i < kSteps; ++i) {
      const Calls calls = step();
      sum.out += calls.out;
      sum.back += calls.back;
    }
    EXPECT_EQ(stash_->statistics().left - before.left, kLeaving * kSteps);
    EXPECT_EQ(stash_->statistics().fetched_ahead - before.fetched_ahead, kLeaving * kSteps);
    return sum;
  }

  static constexpr std::uint64_t kSaved = 3;
  static constexpr std::uint64_t kLeaving = 2;
  static constexpr int kSteps = 1000;
};

TEST_F(StashCalls, OfATensorThatLeavesAndComesBack) {
  const Calls calls = steady_step(false);
  EXPECT_EQ(calls.out, 14 * kLeaving * kSteps);
  // If a fetch is due, a read in place queries whether its stream is captured.
  EXPECT_EQ(calls.back, (14 * kLeaving + 4) * kSteps);
}

// Each copy and each wait is between two events; a later call queries the time between them.
TEST_F(StashCalls, OfOneThatIsTimed) {
  const Calls calls = steady_step(true);
  const double per_tensor = static_cast<double>(calls.out + calls.back) / (kLeaving * kSteps);
  EXPECT_NEAR(per_tensor, 14 + 14 + 4.0 / kLeaving + 4 * 3, 0.5);
  EXPECT_GT(stash_->statistics().copy_nanoseconds, 0U);
}

TEST_F(StashCalls, NoneOfATensorThatStays) {
  make({.budget_bytes = kTensors * kBytes});
  for (int i = 0; i < 3; ++i) {
    const StashHandle first = put(0, stream_).handle;  // queries the stream's id once
    EXPECT_EQ(calls_of([&] { put(1, stream_); }), 0U);
    EXPECT_EQ(calls_of([&] { stash_->read(first, stream_, 0); }), 0U);
    EXPECT_EQ(calls_of([&] { stash_->drop(first); }), 0U);
    stash_->drop(first + 1);
  }
}

// --- copies on the host ------------------------------------------------------------------------------------

// A copy back comes after its own copy out and before the next use of its block, whichever thread makes the
// copy.
TEST(TensorStashOnHost, CopiesOfAllSizesKeepTheirOrder) {
  constexpr std::uint64_t kLarge = std::uint64_t{4} << 20;
  const std::vector<std::uint64_t> sizes = {100, kLarge, 100, 16384, 16385, kLarge, 200};
  TensorStash stash(make_host_stash_backend(), {.ahead_bytes = 2 * kLarge, .flight_bytes = 0});
  for (unsigned step = 0; step < 6; ++step) {
    std::vector<std::vector<unsigned char>> sources;
    std::vector<StashHandle> handles;
    for (const std::uint64_t size : sizes) {
      const auto value = static_cast<unsigned char>(std::size_t{16} * step + sources.size());
      sources.emplace_back(size, value);
      handles.push_back(stash
                            .put({.source = {.begin = reinterpret_cast<std::uintptr_t>(sources.back().data()),
                                             .bytes = size},
                                  .contents = {.storage = sources.size(), .version = step}},
                                 0)
                            .handle);
    }
    const std::vector<StashHandle> released = stash.released(nullptr, sizes.size());
    for (std::size_t i = sizes.size(); i-- > 0;) {
      if (std::ranges::count(released, handles[i]) > 0) {
        std::ranges::fill(sources[i], 0xff);
        ASSERT_EQ(stash.read(handles[i], nullptr, 0).place, StashPlace::kMissing);
        stash.fetch(handles[i], reinterpret_cast<std::uintptr_t>(sources[i].data()), nullptr);
        stash.ready(handles[i], nullptr);
      }
      const auto value = static_cast<unsigned char>(std::size_t{16} * step + i);
      EXPECT_EQ(std::ranges::count(sources[i], value), std::ssize(sources[i]))
          << "tensor " << i << " of step " << step;
      stash.drop(handles[i]);
    }
  }
  EXPECT_GE(stash.statistics().in_bytes, 10 * kLarge);
}

// --- threads -----------------------------------------------------------------------------------------------

// Each thread is a program of its own, like PyTorch's threads that train replicas.
TEST(TensorStashThreads, MayAllCallAtOnce) {
  TensorStash stash(make_host_stash_backend(3), {.ahead_bytes = 3000, .flight_bytes = 2000});
  const auto program = [&stash](unsigned thread) {
    std::mt19937 random(thread);
    for (int step = 0; step < 30; ++step) {
      std::vector<std::vector<unsigned char>> sources;
      std::vector<StashHandle> handles;
      for (unsigned i = 0; i < 5; ++i) {
        sources.emplace_back(500 + 100 * i, static_cast<unsigned char>(thread * 8 + i));
        const AddressRange source{.begin = reinterpret_cast<std::uintptr_t>(sources.back().data()),
                                  .bytes = sources.back().size()};
        handles.push_back(stash.put({.source = source, .contents = {.storage = source.begin}}, 0).handle);
      }
      // The call may return another thread's source, which only that thread may release.
      stash.released(nullptr, 100);
      for (unsigned i = 5; i-- > 0;) {
        if (random() % 4 != 0 && stash.read(handles[i], nullptr, 0).place == StashPlace::kMissing) {
          std::vector<unsigned char> target(sources[i].size());
          stash.fetch(handles[i], reinterpret_cast<std::uintptr_t>(target.data()), nullptr);
          stash.ready(handles[i], nullptr);
          EXPECT_EQ(target, sources[i]);
        }
        stash.drop(handles[i]);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back(program, thread);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(stash.statistics().live_handles, 0U);
  EXPECT_GT(stash.statistics().in_bytes, 4 * 30 * 500U / 2) << "tensors left and were fetched";
}

}  // namespace
}  // namespace vdnn::testing
