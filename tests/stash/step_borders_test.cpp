// The ends of steps that do not end by themselves: programs that keep parts of graphs across steps, and loops
// within a step that look like such programs. All tests compare contents.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/stash/released_tensors.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::step_borders_test {
namespace {

constexpr std::uint64_t kBytes = 1024;
constexpr std::size_t kMost = 64;  // handles per call

class Program {
 public:
  explicit Program(std::uint64_t budget_bytes)
      : stash_(make_host_stash_backend(), {.budget_bytes = budget_bytes}) {}
  ~Program() { drop_all(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  StashHandle save(std::uint64_t signature, std::uint64_t bytes = kBytes) {
    const auto value = static_cast<unsigned char>(++storages_ % 251);
    Bytes memory(bytes, value);
    const PutAnswer answer = stash_.put(
        {.source = range_of(memory), .contents = {.storage = storages_}, .signature = signature}, 0);
    tensors_.emplace(answer.handle, Tensor{.memory = std::move(memory), .value = value});
    const StashHandle handle = answer.handle;
    for (const StashHandle each : testing::released_tensors(stash_, answer)) {
      std::ranges::fill(tensors_.at(each).memory, 0xff);
    }
    return handle;
  }
  void read(StashHandle handle) {
    const ReadAnswer answer = stash_.read(handle, nullptr, 0);
    if (answer.has_fetches) {
      for (const DueFetch& due : stash_.fetches(handle, kMost)) {
        stash_.fetch(due.handle, range_of(tensors_.at(due.handle).memory).begin, nullptr);
      }
    }
    if (answer.place == StashPlace::kMissing) {
      stash_.ready(handle, nullptr);
    }
    const Tensor& tensor = tensors_.at(handle);
    EXPECT_EQ(std::ranges::count(tensor.memory, tensor.value), std::ssize(tensor.memory));
  }
  void drop(StashHandle handle) {
    stash_.drop(handle);
    tensors_.erase(handle);
  }
  void drop_all() {
    while (!tensors_.empty()) {
      drop(tensors_.begin()->first);
    }
  }

  std::vector<StashHandle> forward(std::uint64_t first_signature, std::size_t count) {
    std::vector<StashHandle> saved;
    for (std::size_t i = 0; i < count; ++i) {
      saved.push_back(save(first_signature + i));
    }
    return saved;
  }
  void backward(std::vector<StashHandle>& saved) {
    for (; !saved.empty(); saved.pop_back()) {
      read(saved.back());
      drop(saved.back());
    }
  }

  TensorStash& stash() { return stash_; }
  StashStatistics figures() const { return stash_.statistics(); }

 private:
  using Bytes = std::vector<unsigned char>;
  struct Tensor {
    Bytes memory;
    unsigned char value = 0;
  };

  static AddressRange range_of(const Bytes& bytes) {
    return {.begin = reinterpret_cast<std::uintptr_t>(bytes.data()), .bytes = bytes.size()};
  }

  TensorStash stash_;
  std::map<StashHandle, Tensor> tensors_;
  std::uint64_t storages_ = 0;
};

class OverlappingSteps : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::uint64_t kSteps = 30;

  // Expects that each step after the first few repeats a learned one and uses its plan.
  void expect_learned(std::uint64_t late_in_a_step, std::uint64_t page_locks_in_a_step = 0) {
    const StashStatistics all = program_.figures();
    EXPECT_GE(all.repeated_steps, kSteps - 8);
    EXPECT_LE(all.plans, 4U);
    EXPECT_LE(all.page_locks_when_repeated, page_locks_in_a_step * (all.repeated_steps + 1));
    EXPECT_LE(all.late_when_repeated, late_in_a_step * all.repeated_steps);
    EXPECT_GT(all.fetched_ahead, kSteps);
    if (GetParam() > 0) {
      EXPECT_LE(all.planned_peak_bytes, GetParam());
    }
  }

  Program program_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Budgets, OverlappingSteps, ::testing::Values(0, 6 * kBytes));

// A branch that is never read lives until the next step has made another branch.
TEST_P(OverlappingSteps, AnUnreadBranchLivesIntoTheNextStep) {
  StashHandle branch = 0;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    std::vector<StashHandle> saved = program_.forward(1, 12);
    const StashHandle next = program_.save(100);
    if (branch != 0) {
      program_.drop(branch);
    }
    branch = next;
    program_.backward(saved);
  }
  expect_learned(1);
}

// The program keeps one tensor of each step forever, for example in a list of losses with unread branches.
// Host memory grows by these tensors.
TEST_P(OverlappingSteps, GraphsAreKeptForGood) {
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    program_.save(100);
    std::vector<StashHandle> saved = program_.forward(1, 12);
    program_.backward(saved);
  }
  expect_learned(1, 1);
}

// Each model's forward pass runs before the other model's backward pass, so saved tensors are alive at any
// time. Tensors may come back late.
TEST_P(OverlappingSteps, TwoModelsTakeTurns) {
  std::vector<StashHandle> second;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    std::vector<StashHandle> first = program_.forward(1, 8);
    program_.backward(second);
    second = program_.forward(50, 3);
    program_.backward(first);
  }
  expect_learned(4);
}

// One model makes several steps for each step of the other, while the program keeps a third graph.
TEST_P(OverlappingSteps, OneModelMakesFiveStepsForEachOfTheOther) {
  program_.save(100);
  for (std::uint64_t i = 0; i < 2 * kSteps; ++i) {
    std::vector<StashHandle> saved = i % 6 == 5 ? program_.forward(1, 9) : program_.forward(30, 10);
    program_.backward(saved);
  }
  const StashStatistics all = program_.figures();
  EXPECT_GT(all.repeated_steps, kSteps);
  EXPECT_EQ(all.page_locks_when_repeated, 0U);
  const StashStatistics before = all;
  for (std::uint64_t i = 0; i < 6; ++i) {
    std::vector<StashHandle> saved = i == 5 ? program_.forward(1, 9) : program_.forward(30, 10);
    program_.backward(saved);
  }
  EXPECT_EQ(program_.figures().repeated_steps, before.repeated_steps + 6);
  EXPECT_EQ(program_.figures().plans, before.plans);
}

// Steps from which the program keeps a tensor still count as steps of the known kind.
TEST_P(OverlappingSteps, BeginToOverlapLater) {
  StashHandle kept = 0;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    std::vector<StashHandle> saved = program_.forward(1, 12);
    if (kept != 0) {
      program_.drop(std::exchange(kept, 0));
    }
    if (i >= 5) {
      kept = saved.front();
      program_.read(saved.back());
      std::rotate(saved.begin(), saved.begin() + 1, saved.end());
      saved.pop_back();
      program_.drop(saved.back());
      saved.pop_back();
    }
    program_.backward(saved);
  }
  const StashStatistics all = program_.figures();
  EXPECT_GE(all.repeated_steps, kSteps - 8);
  EXPECT_LE(all.plans, 3U);
}

class StepsThatEndByThemselves : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  Program program_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Budgets, StepsThatEndByThemselves, ::testing::Values(0, 8 * kBytes));

// All tensors have equal sizes, as in a transformer. With checkpointing, each block's forward pass runs again
// before its backward pass.
TEST_P(StepsThatEndByThemselves, CheckpointsOfEqualTensorsAreOneStep) {
  constexpr std::uint64_t kSteps = 5;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<StashHandle> inputs(12);
    std::ranges::generate(inputs, [this] { return program_.save(1); });
    while (!inputs.empty()) {
      program_.read(inputs.back());
      std::vector<StashHandle> inner(4);
      std::ranges::generate(inner, [this] { return program_.save(1); });
      program_.backward(inner);
      program_.drop(inputs.back());
      inputs.pop_back();
    }
  }
  EXPECT_EQ(program_.figures().steps, kSteps);
  EXPECT_EQ(program_.figures().repeated_steps, kSteps - 1);
}

TEST_P(StepsThatEndByThemselves, AGraphThatIsReadTwiceIsOneStep) {
  for (int step = 0; step < 5; ++step) {
    std::vector<StashHandle> saved = program_.forward(1, 8);
    for (int pass = 0; pass < 3; ++pass) {
      for (auto handle = saved.rbegin(); handle != saved.rend(); ++handle) {
        program_.read(*handle);
      }
    }
    program_.backward(saved);
  }
  EXPECT_EQ(program_.figures().steps, 5U);
  EXPECT_EQ(program_.figures().repeated_steps, 4U);
}

// Inner steps whose graphs an outer pass reads look like overlapping steps until the program drops
// everything.
TEST_P(StepsThatEndByThemselves, ALoopWithinAStepIsNoStepOnceTheStepHasEnded) {
  const auto iterate = [this] {
    std::vector<StashHandle> outer = program_.forward(50, 3);
    for (int loop = 0; loop < 7; ++loop) {
      std::vector<StashHandle> inner = program_.forward(1, 4);
      outer.push_back(inner.front());
      inner.erase(inner.begin());
      program_.backward(inner);
    }
    program_.backward(outer);
  };
  for (int i = 0; i < 6; ++i) {
    iterate();
  }
  const StashStatistics before = program_.figures();
  for (int i = 0; i < 4; ++i) {
    iterate();
  }
  EXPECT_EQ(program_.figures().steps, before.steps + 4);
  EXPECT_EQ(program_.figures().repeated_steps, before.repeated_steps + 4);
  EXPECT_EQ(program_.figures().plans, before.plans);
}

// The record of a step needs bounded memory, however long the program keeps and reads a graph.
TEST(StepsWithoutEnd, AreCutOff) {
  Program program(0);
  const StashHandle read_for_good = program.save(1);
  for (int i = 0; i < 300'000; ++i) {
    program.read(read_for_good);
  }
  EXPECT_EQ(program.figures().steps, 1U);
  for (std::uint64_t i = 0; i < 70'000; ++i) {
    program.save(i, 1);
  }
  EXPECT_EQ(program.figures().steps, 2U);
  program.read(read_for_good);
}

}  // namespace
}  // namespace vdnn::step_borders_test
