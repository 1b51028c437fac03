// Random irregular steps of a program that saves tensors through a stash, on devices that check each access.
// Nothing races, and readers find the saved contents. The devices notice if the stash lacks a wait or its
// caller names tensors wrongly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/extent.h"
#include "tests/stash/stash_judge.h"
#include "tests/stash/stash_mutants.h"
#include "tests/stash/stash_program.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using Wrap = std::function<std::unique_ptr<StashBackend>(std::unique_ptr<StashBackend>)>;

struct Trial {
  std::uint64_t seed = 0;
  std::uint64_t order_seed = 0;
  int steps = 12;
  bool by_order = false;
  AdapterDefect defect = AdapterDefect::kNone;
  Wrap wrap = {};
  std::uint64_t fail_call = 0;   // 0: none
  bool releases_at_put = false;  // in all programs instead of some
};

struct Outcome {
  std::vector<std::string> findings;
  std::vector<std::uint64_t> decisions;
  std::vector<std::string> failures;
  StashStatistics statistics;
  std::uint64_t calls = 0;

  std::string first() const { return findings.empty() ? "" : findings.front(); }
};

Outcome run(JudgeKind kind, const Trial& trial) {
  std::mt19937_64 random(trial.seed);
  const auto judge = make_stash_judge(kind, trial.order_seed, trial.by_order);
  CachingMemory memory(*judge);
  StashOptions options = random_stash_options(random);
  options.release_at_put = options.release_at_put || trial.releases_at_put;
  const bool tells_bytes = random() % 2 == 0;
  StashAdapter adapter(*judge, memory, options, tells_bytes, trial.defect, trial.wrap);
  StashProgram program(*judge, adapter, memory, trial.seed);
  const std::uint64_t calls_before = judge->calls();
  if (trial.fail_call > 0) {
    judge->fail_call(trial.fail_call);
  }
  for (int i = 0; i < trial.steps; ++i) {
    program.step();
  }
  Outcome outcome{.decisions = adapter.decisions(),
                  .failures = adapter.failures(),
                  .statistics = adapter.stash().statistics(),
                  .calls = judge->calls() - calls_before};
  adapter.end();
  outcome.findings = judge->finish();
  EXPECT_EQ(outcome.statistics.live_handles, 0U);
  EXPECT_EQ(memory.in_use_bytes(), 0U);
  return outcome;
}

std::uint64_t seeds() {
  return extent({.usual = 1000, .under_sanitizers = 60, .in_long_run = 10000});
}

class StashOrder : public ::testing::TestWithParam<JudgeKind> {};

INSTANTIATE_TEST_SUITE_P(Judges, StashOrder, ::testing::Values(JudgeKind::kSim, JudgeKind::kCuda),
                         ::testing::PrintToStringParamName());

TEST_P(StashOrder, NoRaceInRandomSteps) {
  StashStatistics total;
  for (std::uint64_t seed = 0; seed < seeds() && !HasFailure(); ++seed) {
    const Outcome outcome = run(GetParam(), {.seed = seed, .order_seed = seed});
    EXPECT_TRUE(outcome.failures.empty());
    EXPECT_EQ(outcome.first(), "") << "run(" << GetParam() << ", {.seed = " << seed << "})";
    total.fetched_ahead += outcome.statistics.fetched_ahead;
    total.fetched_late += outcome.statistics.fetched_late;
    total.shared += outcome.statistics.shared;
    total.refused += outcome.statistics.refused;
    total.repeated_steps += outcome.statistics.repeated_steps;
    total.diverged_steps += outcome.statistics.diverged_steps;
  }
  // The programs together reach all cases that the judges check.
  EXPECT_GT(total.fetched_ahead, seeds());
  EXPECT_GT(total.fetched_late, seeds());
  EXPECT_GT(total.shared, seeds());
  EXPECT_GT(total.refused, seeds());
  EXPECT_GT(total.repeated_steps, seeds());
  EXPECT_GT(total.diverged_steps, seeds() / 10);
}

// This check knows no ordering rules. In any order that the waits permit, a reader must see the contents
// written for it.
TEST(StashOrderOnSim, EveryPermittedOrderReadsWhatWasSaved) {
  for (std::uint64_t seed = 0; seed < seeds() / 2 && !HasFailure(); ++seed) {
    const Outcome outcome = run(JudgeKind::kSim, {.seed = seed, .order_seed = seed + 1, .by_order = true});
    EXPECT_EQ(outcome.first(), "") << "seed " << seed << ", in an order of " << seed + 1;
  }
}

TEST(StashOrderOnCpu, DelaysDoNotChangeWhatReadersFind) {
  const std::uint64_t tried = extent({.usual = 12, .under_sanitizers = 4, .in_long_run = 200});
  for (std::uint64_t seed = 0; seed < tried && !HasFailure(); ++seed) {
    const Outcome outcome = run(JudgeKind::kCpu, {.seed = seed, .order_seed = seed, .steps = 5});
    EXPECT_EQ(outcome.first(), "") << "seed " << seed;
  }
}

// --- decisions ---------------------------------------------------------------------------------------------

// The number of programs in which a different order of the device leads to different decisions.
std::uint64_t differing(AdapterDefect defect) {
  std::uint64_t differ = 0;
  for (std::uint64_t seed = 0; seed < seeds() / 10; ++seed) {
    const Outcome one = run(JudgeKind::kCuda, {.seed = seed, .order_seed = 1, .defect = defect});
    const Outcome other = run(JudgeKind::kCuda, {.seed = seed, .order_seed = 2, .defect = defect});
    differ += one.decisions == other.decisions ? 0U : 1U;
  }
  return differ;
}

TEST(StashDecisions, DoNotDependOnWhatHasFinished) {
  EXPECT_EQ(differing(AdapterDefect::kNone), 0U);
}

TEST(StashDecisions, ByPollingDifferFromRunToRun) {
  EXPECT_GT(differing(AdapterDefect::kDecidesByPolling), seeds() / 10 / 10);
}

// --- mutations ---------------------------------------------------------------------------------------------

class StashMutation : public ::testing::TestWithParam<std::tuple<JudgeKind, DroppedWait>> {};

std::string name_of_mutation(const ::testing::TestParamInfo<StashMutation::ParamType>& info) {
  return ::testing::PrintToString(std::get<0>(info.param)) + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Judges, StashMutation,
                         ::testing::Combine(::testing::Values(JudgeKind::kSim, JudgeKind::kCuda),
                                            ::testing::ValuesIn(kDroppedWaits)),
                         name_of_mutation);

// The number of programs in which the judge finds something.
std::uint64_t found_in(JudgeKind kind, const Trial& of, std::uint64_t tried) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 0; seed < tried; ++seed) {
    Trial trial = of;
    trial.seed = seed;
    trial.order_seed = seed;
    found += run(kind, trial).findings.empty() ? 0U : 1U;
  }
  return found;
}

TEST_P(StashMutation, IsFound) {
  const auto& [kind, dropped] = GetParam();
  const Wrap wrap = [&dropped = dropped](std::unique_ptr<StashBackend> target) {
    return std::make_unique<WithoutWait>(std::move(target), dropped);
  };
  const std::uint64_t tried = seeds() / 10;
  EXPECT_GT(found_in(kind, {.wrap = wrap, .releases_at_put = dropped.needs_release_at_put}, tried),
            tried / 25);
}

TEST_P(StashOrder, TensorsNamedByTheirAddressesAreMistakenForOthers) {
  const std::uint64_t tried = seeds() / 20;
  EXPECT_GT(found_in(GetParam(), {.defect = AdapterDefect::kIdentityByAddress}, tried), tried / 5);
}

// The program writes a storage in place between two saves of it, and never reads the first handle.
Outcome save_changed_storage(JudgeKind kind, AdapterDefect defect) {
  const auto judge = make_stash_judge(kind, 0);
  CachingMemory memory(*judge);
  StashAdapter adapter(*judge, memory, {.ahead_bytes = 0, .flight_bytes = 0}, false, defect);
  const StreamHandle stream = judge->stream(0);
  const auto write = [&](const Tensor& tensor) {
    judge->work(stream, "write", {}, {{.range = tensor->range, .version = contents_of(*tensor)}});
  };
  auto tensor = std::make_shared<Storage>(memory, 1024, stream, 1);
  write(tensor);
  const SavedHandle first = adapter.save(tensor, stream);
  ++tensor->version;
  write(tensor);
  const SavedHandle second = adapter.save(tensor, stream);
  tensor.reset();
  Tensor read = adapter.read(second, stream);
  judge->work(stream, "backward", {{.range = read->range, .version = second.contents}}, {});
  read.reset();
  adapter.drop(second);
  adapter.drop(first);
  Outcome outcome{.statistics = adapter.stash().statistics()};
  adapter.end();
  outcome.findings = judge->finish();
  return outcome;
}

TEST_P(StashOrder, AStorageThatWasChangedIsAnotherTensor) {
  const Outcome right = save_changed_storage(GetParam(), AdapterDefect::kNone);
  EXPECT_EQ(right.first(), "");
  EXPECT_EQ(right.statistics.left, 2U);
  EXPECT_FALSE(save_changed_storage(GetParam(), AdapterDefect::kVersionIgnored).findings.empty());
}

// --- one at a time -------------------------------------------------------------------------------------

// The stash keeps a tensor of one stream. The tensor leaves at a save on a second stream, which nothing
// orders after the first.
TEST_P(StashOrder, ATensorThatLeavesLaterComesAfterItsProducer) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto judge = make_stash_judge(GetParam(), seed);
    CachingMemory memory(*judge);
    StashAdapter adapter(*judge, memory, {.budget_bytes = 1024, .flight_bytes = 0}, false,
                         AdapterDefect::kNone);
    std::vector<SavedHandle> saved;
    for (std::size_t i = 0; i < StashJudge::kStreams; ++i) {
      auto tensor = std::make_shared<Storage>(memory, 1024, judge->stream(i), i);
      judge->work(judge->stream(i), "forward", {},
                  {{.range = tensor->range, .version = contents_of(*tensor)}});
      saved.push_back(adapter.save(tensor, judge->stream(i)));
    }
    EXPECT_GT(adapter.stash().statistics().left, 0U);
    std::ranges::for_each(saved, [&](const SavedHandle& each) { adapter.drop(each); });
    adapter.end();
    EXPECT_THAT(judge->finish(), ::testing::IsEmpty());
  }
}

// With release_at_put, the stash still does not release sources that it is told to hold.
TEST_P(StashOrder, ASourceThatIsHeldIsReleasedAfterItsCopy) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto judge = make_stash_judge(GetParam(), seed);
    {
      TensorStash stash(judge->make_backend(), {.release_at_put = true});
      const StreamHandle stream = judge->stream(0);
      std::vector<PutAnswer> answers;
      for (std::uint64_t i = 0; i < 2; ++i) {
        const AddressRange source{.begin = judge->arena().begin + 1024 * i, .bytes = 1024};
        const StashIdentity contents{.storage = i};
        judge->work(stream, "forward", {}, {{.range = source, .version = contents_version(contents)}});
        answers.push_back(stash.put({.source = source, .stream = stream, .contents = contents}, 0));
        stash.hold(answers.back().handle);
        EXPECT_THROW(stash.hold(answers.back().handle), InvalidArgument);
        EXPECT_EQ(stash.read(answers.back().handle, stream, 0).place, StashPlace::kInPlace);
      }
      EXPECT_FALSE(answers[0].has_released);
      EXPECT_TRUE(answers[1].has_released);
      EXPECT_THAT(stash.released(stream, 1), ::testing::ElementsAre(answers[0].handle));
      stash.drop(answers[1].handle);
      judge->work(stream, "next user", {},
                  {{.range = {.begin = judge->arena().begin, .bytes = 2048}, .version = 77}});
      EXPECT_EQ(stash.read(answers[0].handle, stream, 0).place, StashPlace::kMissing);
      EXPECT_THROW(stash.hold(answers[0].handle), InvalidArgument);
    }
    EXPECT_THAT(judge->finish(), ::testing::IsEmpty());
  }
}

// --- failures ----------------------------------------------------------------------------------------------

// Each device call fails once. Either the caller gets an error or the tensor stays on the device. A repeated
// call works, readers find the saved contents, and nothing leaks.
TEST_P(StashOrder, EveryCallFailsInTurn) {
  std::uint64_t told = 0;
  std::uint64_t tried = 0;
  for (std::uint64_t seed = 0; seed < extent({.usual = 2, .under_sanitizers = 1, .in_long_run = 100});
       ++seed) {
    Trial trial{.seed = seed, .order_seed = seed, .steps = 5};
    const std::uint64_t calls = run(GetParam(), trial).calls;
    for (std::uint64_t fail = 1; fail <= calls && !HasFailure(); ++fail) {
      trial.fail_call = fail;
      const Outcome outcome = run(GetParam(), trial);
      EXPECT_EQ(outcome.first(), "") << "seed " << seed << ", call " << fail;
      told += outcome.failures.empty() ? 0U : 1U;
      ++tried;
    }
  }
  EXPECT_GT(told, tried / 8) << "other failures hit the program's own calls, which it repeats, or "
                                "page-locking, without which the stash works";
}

}  // namespace
}  // namespace vdnn::testing
