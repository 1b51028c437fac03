// Random irregular steps of a program that saves tensors through a stash, on devices that check each access.
// Nothing races, and readers find the saved contents. The devices notice if the stash lacks a wait or its
// caller names tensors wrongly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/extent.h"
#include "tests/stash/stash_judge.h"
#include "tests/stash/stash_mutants.h"
#include "tests/stash/stash_program.h"
#include "vdnn/error.h"

namespace vdnn::testing::stash_order_test {
namespace {

using Wrap = std::function<std::unique_ptr<StashBackend>(std::unique_ptr<StashBackend>)>;

struct Trial {
  std::uint64_t seed = 0;
  std::uint64_t order_seed = 0;
  int steps = 12;
  bool by_order = false;
  AdapterDefect defect = AdapterDefect::kNone;
  Wrap wrap = {};
  std::uint64_t fail_call = 0;  // counted since just before the stash was made; 0: none
  CallFailure failure = {};
  bool releases_at_put = false;  // in all programs instead of some
};

struct Outcome {
  std::vector<std::string> findings;
  std::vector<std::uint64_t> decisions;
  std::string failure_of_creation;  // after which the program makes the stash again
  std::vector<std::string> failures;
  std::vector<std::string> notices;
  std::string failed_call;
  StashStatistics statistics;
  // Calls that Trial::failure counts: while the stash was made, until it was destroyed, and after that.
  std::uint64_t calls_of_creation = 0;
  std::uint64_t calls_before_end = 0;
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
  const std::uint64_t calls_before = judge->calls(trial.failure.call);
  const auto calls = [&] { return judge->calls(trial.failure.call) - calls_before; };
  if (trial.fail_call > 0) {
    judge->fail_call(trial.fail_call, trial.failure);
  }
  Outcome outcome;
  std::optional<StashAdapter> adapter;
  const auto make = [&] { adapter.emplace(*judge, memory, options, tells_bytes, trial.defect, trial.wrap); };
  try {
    make();
  } catch (const Error& error) {
    outcome.failure_of_creation = error.what();
    make();
  }
  outcome.calls_of_creation = calls();
  StashProgram program(*judge, *adapter, memory, trial.seed);
  for (int i = 0; i < trial.steps; ++i) {
    program.step();
    constexpr std::size_t kRoomForANotice = 1000;
    for (std::string text; !(text = adapter->stash().take_notice(kRoomForANotice)).empty();) {
      outcome.notices.push_back(text);
    }
  }
  outcome.decisions = adapter->decisions();
  outcome.failures = adapter->failures();
  outcome.statistics = adapter->stash().statistics();
  outcome.calls_before_end = calls();
  adapter->end();
  outcome.calls = calls();
  outcome.failed_call = judge->failed_call();
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

std::uint64_t seeds_of_failures() {
  return extent({.usual = 2, .under_sanitizers = 1, .in_long_run = 100});
}

auto is_error_of_cuda(const std::string& call, const std::string& status) {
  return ::testing::AllOf(::testing::StartsWith("cuda:0: " + call + "("),
                          ::testing::EndsWith("): " + status));
}

// Each device call fails once, from the first call that makes the stash to the last one that destroys it.
// (The judge does not count the calls that make a stash over a Device.) A stash that cannot be made throws an
// error that names the call. In later calls, either the caller gets such an error or the tensor stays on the
// device. A repeated call works, and readers find the saved contents. The end of the stash reports nothing,
// since a destructor that throws would end this test.
//
// Nothing leaks but the stream or the event whose own destruction failed. The stash does not try again, since
// CUDA does not specify whether such a handle still exists. Memory that once cannot be unlocked does not
// leak: the stash unlocks it at the latest when it is destroyed.
TEST_P(StashOrder, EveryCallFailsInTurn) {
  std::uint64_t told = 0;
  std::uint64_t tried = 0;
  std::set<std::string> told_by_creation;
  std::set<std::string> failed_at_end;
  for (std::uint64_t seed = 0; seed < seeds_of_failures(); ++seed) {
    Trial trial{.seed = seed, .order_seed = seed, .steps = 5};
    const Outcome usual = run(GetParam(), trial);
    for (std::uint64_t fail = 1; fail <= usual.calls && !HasFailure(); ++fail) {
      trial.fail_call = fail;
      const Outcome outcome = run(GetParam(), trial);
      SCOPED_TRACE("seed " + std::to_string(seed) + ", call " + std::to_string(fail) + " of " +
                   std::to_string(usual.calls) + ", " + outcome.failed_call);
      EXPECT_EQ(outcome.first(), "");
      EXPECT_NE(outcome.failed_call, "");
      if (const std::string& failure = outcome.failure_of_creation; !failure.empty()) {
        EXPECT_LE(fail, usual.calls_of_creation);
        EXPECT_THAT(failure, is_error_of_cuda(outcome.failed_call, "cudaErrorInvalidValue"));
        told_by_creation.insert(outcome.failed_call);
      }
      if (fail > usual.calls_before_end) {
        failed_at_end.insert(outcome.failed_call);
      }
      EXPECT_THAT(outcome.failures, ::testing::Each(::testing::HasSubstr(outcome.failed_call)));
      told += outcome.failures.empty() ? 0U : 1U;
      ++tried;
    }
  }
  if (HasFailure()) {
    return;
  }
  EXPECT_GT(told, tried / 8) << "other failures hit the program's own calls, which it repeats, the "
                                "measurement of copies, or the end of the stash";
  if (GetParam() == JudgeKind::kCuda) {
    EXPECT_THAT(told_by_creation,
                ::testing::IsSupersetOf({"cudaGetDeviceCount", "cudaSetDevice", "cuDeviceGetAttribute",
                                         "cudaStreamCreateWithFlags"}));
    EXPECT_THAT(failed_at_end, ::testing::IsSupersetOf({"cudaStreamSynchronize", "cudaStreamDestroy",
                                                        "cudaEventDestroy", "cudaHostUnregister"}));
  } else {
    EXPECT_THAT(failed_at_end, ::testing::ElementsAre("free_host", "synchronize_copies"));
  }
}

std::size_t count_notices(const Outcome& outcome, const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      outcome.notices, [&](const std::string& each) { return each.find(text) != std::string::npos; }));
}

constexpr const char* kNoticeOfTheSystem = "the system refused to page-lock more than ";

// Each call that may report a lack of memory does so once. If memory cannot be page-locked, no call of the
// stash fails. Either the tensor stays, of which the stash gives one notice, or the stash frees a block that
// it kept for reuse and tries again. A lack of memory for streams and events is an error like others.
TEST_P(StashOrder, EveryCallThatNeedsMemoryLacksItInTurn) {
  const auto names = make_stash_judge(GetParam(), 0)->calls_that_need_memory();
  std::uint64_t stayed = 0;
  std::uint64_t unmade = 0;
  for (std::uint64_t seed = 0; seed < 4 * seeds_of_failures(); ++seed) {
    for (const std::string_view name : names) {
      Trial trial{
          .seed = seed, .order_seed = seed, .steps = 5, .failure = {.call = name, .is_lack_of_memory = true}};
      const Outcome usual = run(GetParam(), trial);
      EXPECT_EQ(count_notices(usual, kNoticeOfTheSystem), 0U);
      for (std::uint64_t fail = 1; fail <= usual.calls && !HasFailure(); ++fail) {
        trial.fail_call = fail;
        const Outcome outcome = run(GetParam(), trial);
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(fail) + " of " +
                     std::to_string(usual.calls) + " calls of " + std::string(name));
        EXPECT_EQ(outcome.first(), "");
        EXPECT_EQ(outcome.failed_call, name);
        if (fail <= usual.calls_of_creation) {
          EXPECT_THAT(outcome.failure_of_creation,
                      is_error_of_cuda(outcome.failed_call, "cudaErrorMemoryAllocation"));
          ++unmade;
        }
        if (name != names.front()) {
          EXPECT_THAT(outcome.failures, ::testing::Each(::testing::HasSubstr(outcome.failed_call)));
          EXPECT_EQ(count_notices(outcome, kNoticeOfTheSystem), 0U);
          continue;
        }
        EXPECT_THAT(outcome.failures, ::testing::IsEmpty());
        if (usual.statistics.refused == 0) {
          EXPECT_EQ(count_notices(outcome, kNoticeOfTheSystem), outcome.statistics.refused > 0 ? 1U : 0U);
          stayed += outcome.statistics.refused;
        }
      }
    }
  }
  if (HasFailure()) {
    return;
  }
  EXPECT_GT(stayed, 0U);
  EXPECT_EQ(unmade > 0, GetParam() == JudgeKind::kCuda) << "the backend of a Device creates no stream that "
                                                           "the judge counts";
}

// The system page-locks no memory at all.
class LocksNoPages final : public ForwardingStashBackend {
 public:
  using ForwardingStashBackend::ForwardingStashBackend;
  AddressRange allocate_host(std::uint64_t bytes) override {
    throw OutOfMemory("page-locked memory", {.asked = bytes});
  }
};

TEST_P(StashOrder, WithoutPageLockedMemoryAllTensorsStayAndOneNoticeIsGiven) {
  const Wrap wrap = [](std::unique_ptr<StashBackend> target) {
    return std::make_unique<LocksNoPages>(std::move(target));
  };
  std::uint64_t stayed = 0;
  for (std::uint64_t seed = 0; seed < seeds() / 10 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Outcome outcome = run(GetParam(), {.seed = seed, .order_seed = seed, .wrap = wrap});
    EXPECT_EQ(outcome.first(), "");
    EXPECT_THAT(outcome.failures, ::testing::IsEmpty());
    EXPECT_EQ(outcome.statistics.left, 0U);
    EXPECT_EQ(count_notices(outcome, std::string(kNoticeOfTheSystem) + "0 bytes of the host budget of "),
              outcome.statistics.refused > 0 ? 1U : 0U);
    stayed += outcome.statistics.refused;
  }
  EXPECT_GT(stayed, seeds());
}

}  // namespace
}  // namespace vdnn::testing::stash_order_test
