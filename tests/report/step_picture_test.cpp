// Compares the picture of a step with its schedule and prediction.

#include "src/report/step_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/residency.h"
#include "src/report/step_time.h"
#include "tests/train/lives_run.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

struct PictureCase {
  std::string model;
  Policy policy = Policy::kOffloadNone;
  double memory_share = 1;  // of the memory without a budget
  bool graph = false;
  bool several_lives = false;
};

RunOptions options_of(const PictureCase& one) {
  RunOptions options;
  options.model.model = one.model;
  options.model.batch = 32;
  options.device = "sim:titan-x";
  options.policy = one.policy;
  options.graph = one.graph;
  options.trace_prediction = true;
  return options;
}

PlannedRun planned(const PictureCase& one) {
  RunOptions options = options_of(one);
  PlannedRun run = plan_run(options);
  if (one.memory_share < 1) {
    options.memory_bytes =
        static_cast<std::uint64_t>(one.memory_share * static_cast<double>(run.prediction.peak_bytes));
    run = plan_run(options);
  }
  return one.several_lives ? testing::with_several_lives(std::move(run), 0) : run;
}

class StepPictureTest : public ::testing::TestWithParam<PictureCase> {
 protected:
  const PlannedRun run_ = planned(GetParam());
  const StepPicture picture_ = picture_of(run_);

  const Instruction& instruction_of(std::size_t work) const {
    std::size_t seen = 0;
    const auto found = std::ranges::find_if(run_.schedule.instructions, [&](const Instruction& instruction) {
      const bool moves =
          instruction.kind == InstructionKind::kAllocate || instruction.kind == InstructionKind::kRelease;
      return !moves && seen++ == work;
    });
    return *found;
  }
};

INSTANTIATE_TEST_SUITE_P(All, StepPictureTest,
                         ::testing::Values(PictureCase{"resnet20", Policy::kBaseline},
                                           PictureCase{"resnet20", Policy::kOffloadNone},
                                           PictureCase{"googlenet", Policy::kOffloadAll},
                                           PictureCase{"alexnet", Policy::kOffloadConv},
                                           PictureCase{"resnet20", Policy::kOptimal, 0.5},
                                           PictureCase{"lenet", Policy::kOffloadAll, 1, true},
                                           PictureCase{"resnet20", Policy::kOffloadNone, 1, false, true},
                                           PictureCase{"googlenet", Policy::kOptimal, 0.4}),
                         [](const auto& test) {
                           return test.param.model + "_" + to_string(test.param.policy) +
                                  (test.param.graph ? "_graph" : "") +
                                  (test.param.several_lives ? "_several_lives" : "");
                         });

TEST_P(StepPictureTest, HasAllWorkInTheOrderOfTheList) {
  const auto moved = std::ranges::count_if(run_.schedule.instructions, [](const Instruction& instruction) {
    return instruction.kind == InstructionKind::kAllocate || instruction.kind == InstructionKind::kRelease;
  });
  ASSERT_EQ(picture_.work.size() + static_cast<std::size_t>(moved), run_.schedule.instructions.size());
  std::map<StreamRole, double> done;
  for (std::size_t index = 0; index < picture_.work.size(); ++index) {
    const PicturedWork& work = picture_.work[index];
    const Instruction& instruction = instruction_of(index);
    EXPECT_EQ(work.kind, instruction.kind);
    EXPECT_EQ(work.op, instruction.op);
    EXPECT_EQ(work.value, instruction.value);
    // Work of one stream does not overlap.
    if (done.contains(work.stream)) {
      EXPECT_GE(work.begin, done[work.stream] - 1e-12) << index;
    }
    done[work.stream] = work.end;
    if (is_launch(work.kind)) {
      const Op& op = run_.tape->op(work.op);
      EXPECT_NEAR(work.end - work.begin,
                  run_.target.profile.seconds(op.cost_with(run_.schedule.algorithms[work.op])), 1e-9)
          << op.name;
    }
  }
}

// The parts of one repeated step in which a stay is present. A stay that crosses the end of the step has two
// parts.
std::vector<std::pair<double, double>> parts(const Stay& stay, double step) {
  if (stay.end - stay.begin >= step) {
    return {{0, step}};
  }
  const double begin = stay.begin - std::floor(stay.begin / step) * step;
  const double end = begin + (stay.end - stay.begin);
  if (end <= step) {
    return {{begin, end}};
  }
  return {{begin, step}, {0, end - step}};
}

TEST_P(StepPictureTest, NoTwoStaysOverlap) {
  constexpr double kRounding = 1e-9;
  for (std::size_t one = 0; one < picture_.stays.size(); ++one) {
    for (std::size_t other = one + 1; other < picture_.stays.size(); ++other) {
      const Stay& a = picture_.stays[one];
      const Stay& b = picture_.stays[other];
      if (a.address >= b.address + b.bytes || b.address >= a.address + a.bytes) {
        continue;
      }
      for (const auto& [a_begin, a_end] : parts(a, picture_.step_seconds)) {
        for (const auto& [b_begin, b_end] : parts(b, picture_.step_seconds)) {
          EXPECT_LE(std::min(a_end, b_end) - std::max(a_begin, b_begin), kRounding)
              << "stays " << one << " and " << other << " at " << a.address << " and " << b.address;
        }
      }
    }
  }
}

TEST_P(StepPictureTest, StaysReachUpToThePeakAndHaveTheirTimesInOrder) {
  std::uint64_t highest = 0;
  for (const Stay& stay : picture_.stays) {
    highest = std::max(highest, stay.address + stay.bytes);
    EXPECT_LE(stay.begin, stay.needed_from);
    EXPECT_LE(stay.needed_from, stay.needed_until);
    EXPECT_LE(stay.needed_until, stay.end);
    EXPECT_FALSE(stay.work.empty());
  }
  EXPECT_LE(highest, run_.prediction.peak_bytes);
  EXPECT_GT(highest + run_.target.profile.granule_bytes, run_.prediction.peak_bytes);
}

TEST_P(StepPictureTest, EveryUseOfDeviceMemoryIsPartOfAStay) {
  std::set<std::pair<std::uint32_t, ValueId>> expected;
  for (std::uint32_t work = 0; work < picture_.work.size(); ++work) {
    for (const BufferUse& use : uses(*run_.tape, instruction_of(work))) {
      if (run_.schedule.buffers[use.buffer].space == Space::kDevice) {
        expected.insert({work, use.value});
      }
    }
  }
  std::set<std::pair<std::uint32_t, ValueId>> found;
  for (const Stay& stay : picture_.stays) {
    for (const std::uint32_t work : stay.work) {
      EXPECT_TRUE(found.insert({work, stay.value}).second || !is_launch(picture_.work[work].kind)) << work;
    }
  }
  EXPECT_EQ(found, expected);
}

TEST_P(StepPictureTest, ThePeakIsTheFullestMomentOfTheList) {
  const std::vector<std::uint64_t> in_use = bytes_in_use(run_.schedule);
  const std::uint64_t most = *std::ranges::max_element(in_use);
  EXPECT_EQ(picture_.peak.bytes, most);
  EXPECT_EQ(picture_.peak.op, run_.schedule.instructions[fullest_launch(run_.schedule, in_use)].op);
  std::uint64_t sum = 0;
  for (const Resident& resident : picture_.peak.residents) {
    sum += resident.bytes;
  }
  EXPECT_EQ(sum, most);
  EXPECT_TRUE(std::ranges::is_sorted(picture_.peak.residents, std::ranges::greater{}, &Resident::bytes));
}

TEST_P(StepPictureTest, DecisionsAreThoseOfTheSchedule) {
  std::set<std::uint32_t> recomputed;
  const auto copies = [&](InstructionKind kind, ValueId value) {
    return static_cast<std::size_t>(
        std::ranges::count_if(run_.schedule.instructions, [&](const Instruction& instruction) {
          return instruction.kind == kind && instruction.value == value;
        }));
  };
  for (const Decision& decision : picture_.decisions) {
    EXPECT_EQ(decision.offloads.size(), copies(InstructionKind::kOffload, decision.value));
    EXPECT_EQ(decision.prefetches.size(), copies(InstructionKind::kPrefetch, decision.value));
    recomputed.insert(decision.recomputations.begin(), decision.recomputations.end());
    EXPECT_EQ(decision.offloads.empty(), decision.prefetches.empty());
    EXPECT_EQ(decision.fate == ValueDecision::kOffloaded, !decision.offloads.empty());
    EXPECT_EQ(decision.hidden_share.has_value(), !decision.offloads.empty());
    if (decision.hidden_share) {
      EXPECT_GE(*decision.hidden_share, -1e-9);
      EXPECT_LE(*decision.hidden_share, 1);
    }
    EXPECT_EQ(decision.fate, decisions_of(*run_.tape, run_.schedule)[decision.value]);
    EXPECT_TRUE(decision.fate != ValueDecision::kRecomputed || !decision.recomputations.empty());
  }
  EXPECT_EQ(recomputed.size(), recomputed_ops(run_.schedule));
}

TEST_P(StepPictureTest, StallsAreWhatThePredictionCounts) {
  double stalled = 0;
  for (const Stall& stall : picture_.stalls) {
    stalled += stall.end - stall.begin;
  }
  EXPECT_NEAR(stalled, run_.prediction.stall_seconds, 1e-9);
}

// The page gives the same hidden share of a copy as `vdnn explain`.
TEST_P(StepPictureTest, HidesOfASingleCopyWhatIsSaidOfIt) {
  const StepTime time = step_time(run_.schedule, run_.prediction);
  for (const Decision& decision : picture_.decisions) {
    double copied = 0;
    double hidden = 0;
    for (std::uint32_t index = 0; index < run_.schedule.instructions.size(); ++index) {
      const Instruction& instruction = run_.schedule.instructions[index];
      if (instruction.value == decision.value &&
          (instruction.kind == InstructionKind::kOffload || instruction.kind == InstructionKind::kPrefetch)) {
        const CopyTime copy = copy_time(time, run_.prediction, index);
        copied += copy.seconds;
        hidden += copy.hidden_share * copy.seconds;
      }
    }
    if (decision.hidden_share) {
      EXPECT_NEAR(*decision.hidden_share, hidden / copied, 1e-9);
    }
  }
}

// Covers a link so slow that no copy overlaps with computation, and one so fast that every copy does.
TEST(StepPicture, CopiesAreHiddenAsFarAsComputeDoesNotWait) {
  PlannedRun run = planned({"alexnet", Policy::kOffloadAll});
  const auto hidden = [&run](double rate) {
    SimProfile profile = run.target.profile;
    profile.link_bytes_per_second = {rate, rate};
    profile.link_bytes_per_second_both_ways = {rate, rate};
    run.prediction = predict(*run.tape, run.schedule, {.profile = profile, .trace = true});
    std::vector<double> shares;
    for (const Decision& decision : picture_of(run).decisions) {
      if (decision.hidden_share) {
        shares.push_back(*decision.hidden_share);
      }
    }
    return shares;
  };
  EXPECT_THAT(hidden(1e15), ::testing::Each(::testing::Gt(0.5)));
  // The bound is above one half, because half of one value's copy counts as hidden: no op waits for that
  // copy, only for the copy after it.
  EXPECT_THAT(hidden(1e7), ::testing::Each(::testing::Lt(0.6)));
}

TEST(StepPicture, WantsATrace) {
  RunOptions options = options_of({"lenet", Policy::kOffloadNone});
  options.trace_prediction = false;
  const PlannedRun run = plan_run(options);
  EXPECT_THROW(picture_of(run), InvalidArgument);
}

}  // namespace
}  // namespace vdnn
