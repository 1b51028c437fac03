// For every rule of the checker, one schedule breaks only that rule. These schedules are made by changes to a
// right schedule of the tiny tape, which offloads as much as possible.

#include "vdnn/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/plan/tapes.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CheckerTest : public ::testing::Test {
 protected:
  std::vector<std::string> findings() const { return check_schedule(*tape_, schedule_); }

  Instruction& launch(const std::string& op) {
    const OpId id = op_named(*tape_, op);
    return *std::ranges::find_if(schedule_.instructions, [&](const Instruction& it) {
      return it.kind == InstructionKind::kLaunch && it.op == id;
    });
  }
  Instruction& transfer(InstructionKind kind, const std::string& value) {
    const ValueId id = value_named(*tape_, value);
    return *std::ranges::find_if(schedule_.instructions,
                                 [&](const Instruction& it) { return it.kind == kind && it.value == id; });
  }
  BufferId buffer(const std::string& name) const {
    const auto found = std::ranges::find(schedule_.buffers, name, &Buffer::name);
    return static_cast<BufferId>(found - schedule_.buffers.begin());
  }
  Instruction& life(InstructionKind kind, const std::string& name) {
    const BufferId id = buffer(name);
    return *std::ranges::find_if(schedule_.instructions,
                                 [&](const Instruction& it) { return it.kind == kind && it.buffer == id; });
  }
  std::uint32_t index(const Instruction& it) const {
    return static_cast<std::uint32_t>(&it - schedule_.instructions.data());
  }

  // Renumbers waits for instructions after `at`.
  void insert(std::uint32_t at, Instruction instruction) {
    for (Instruction& it : schedule_.instructions) {
      for (Wait& wait : it.waits) {
        wait.instruction += wait.instruction >= at ? 1 : 0;
      }
    }
    schedule_.instructions.insert(schedule_.instructions.begin() + at, std::move(instruction));
  }
  void erase(std::uint32_t at) {
    schedule_.instructions.erase(schedule_.instructions.begin() + at);
    for (Instruction& it : schedule_.instructions) {
      std::erase_if(it.waits, [&](const Wait& wait) { return wait.instruction == at; });
      for (Wait& wait : it.waits) {
        wait.instruction -= wait.instruction > at ? 1 : 0;
      }
    }
  }
  BufferId add_buffer(Space space, bool persistent) {
    schedule_.buffers.push_back({.name = "more", .bytes = 64, .space = space, .persistent = persistent});
    return static_cast<BufferId>(schedule_.buffers.size() - 1);
  }

  const TapePtr tape_ = tiny_tape();
  Schedule schedule_ = schedule_of(*tape_, Policy::kOffloadAll);
};

TEST_F(CheckerTest, AcceptsTheUnbroken) {
  EXPECT_THAT(findings(), IsEmpty());
  EXPECT_NO_THROW(require_valid(*tape_, schedule_));
}

// --- form ----------------------------------------------------------------------------------------

TEST_F(CheckerTest, AlgorithmsForEveryOp) {
  schedule_.algorithms.pop_back();
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("algorithms for 4 ops, the tape has 5")));
}

// Regression: the checker then examined the op's launch with the algorithm that does not exist.
TEST_F(CheckerTest, AlgorithmsThatExist) {
  schedule_.algorithms[0] = 7;
  EXPECT_THAT(findings(), ElementsAre("conv.forward has no algorithm 7"));
}

TEST_F(CheckerTest, NamesThatExist) {
  const Schedule intact = schedule_;
  const auto many = static_cast<std::uint32_t>(intact.buffers.size());
  const BufferId host = buffer("y (host)");
  const BufferId device = buffer("p");
  const ValueId y = value_named(*tape_, "y");
  for (std::uint32_t at = 0; at < intact.instructions.size(); ++at) {
    const InstructionKind kind = intact.instructions[at].kind;
    std::vector<Instruction> broken;
    const auto change = [&](auto member, std::uint32_t to) {
      broken.push_back(intact.instructions[at]);
      broken.back().*member = to;
    };
    if (kind == InstructionKind::kLaunch) {
      change(&Instruction::op, static_cast<OpId>(tape_->ops().size()));
      for (std::size_t operand = 0; operand + 1 < intact.instructions[at].operands.size(); ++operand) {
        for (const BufferId to : {many, kNone, host}) {
          broken.push_back(intact.instructions[at]);
          broken.back().operands[operand] = to;
        }
      }
    } else {
      change(&Instruction::buffer, many);
      change(&Instruction::buffer, kNone);
    }
    if (kind == InstructionKind::kLoad || kind == InstructionKind::kReadResult) {
      change(&Instruction::value, y);
      change(&Instruction::value, kNone);
      change(&Instruction::buffer, host);
    }
    if (kind == InstructionKind::kOffload || kind == InstructionKind::kPrefetch) {
      change(&Instruction::value, kNone);
      change(&Instruction::buffer, host);
      change(&Instruction::host_buffer, device);
      change(&Instruction::host_buffer, kNone);
    }
    for (const Instruction& it : broken) {
      schedule_.instructions[at] = it;
      EXPECT_THAT(findings(), ElementsAre(HasSubstr("is malformed"))) << at;
    }
    schedule_.instructions[at] = intact.instructions[at];
  }
}

TEST_F(CheckerTest, AnOperandForEveryValue) {
  launch("w.update").operands.pop_back();
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("is malformed")));
}

TEST_F(CheckerTest, AWorkspaceWhereTheAlgorithmWantsOne) {
  launch("conv.forward").operands.back() = kNone;
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("is malformed")));
}

TEST_F(CheckerTest, NoWorkspaceWhereTheAlgorithmWantsNone) {
  launch("w.update").operands.back() = buffer("p");
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("is malformed")));
}

TEST_F(CheckerTest, WaitsForWhatComesBefore) {
  Instruction& it = launch("loss.forward");
  const std::vector<Wait> intact = it.waits;
  const auto count = static_cast<std::uint32_t>(schedule_.instructions.size());
  for (const Wait wait :
       {Wait{index(it), 0}, Wait{index(it) + 1, 0}, Wait{count, 0}, Wait{count, 1}, Wait{0, 2}}) {
    it.waits = intact;
    it.waits.push_back(wait);
    EXPECT_THAT(findings(), ElementsAre(HasSubstr("which does not come before it")))
        << wait.instruction << ", " << wait.steps_ago;
  }
}

TEST_F(CheckerTest, NoWaitsForReleases) {
  const std::uint32_t release = index(life(InstructionKind::kRelease, "y"));
  launch("loss.backward").waits.push_back({release, 0});
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("waits for a release, which is no work")));
}

TEST_F(CheckerTest, OpsRunOnTheComputeStream) {
  launch("w.update").stream = StreamRole::kPrefetch;
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("launch w.update, step 0) is malformed")));
}

TEST_F(CheckerTest, PersistentValuesAreNotMoved) {
  const BufferId host = add_buffer(Space::kHost, true);
  schedule_.instructions.push_back({.kind = InstructionKind::kOffload,
                                    .stream = StreamRole::kCompute,
                                    .value = value_named(*tape_, "w"),
                                    .buffer = buffer("w"),
                                    .host_buffer = host});
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("offload w, step 0) is malformed")));
}

TEST_F(CheckerTest, PersistentValuesHaveOnePlace) {
  // Value w is in buffer "w", except that the update writes it to another buffer.
  const BufferId more = add_buffer(Space::kDevice, true);
  schedule_.buffers[more].bytes = 16;
  launch("w.update").operands[2] = more;
  EXPECT_THAT(findings(), ElementsAre(HasSubstr("names w in buffer 'more', which is not its one place")));
}

TEST_F(CheckerTest, PlacesOfPersistentValuesPersist) {
  schedule_.buffers[buffer("w")].persistent = false;
  EXPECT_THAT(findings(), Each(HasSubstr("names w in buffer 'w', which is not its one place")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

TEST_F(CheckerTest, PlacesOfPersistentValuesAreOfTheirSize) {
  schedule_.buffers[buffer("w")].bytes = 32;
  EXPECT_THAT(findings(), Each(HasSubstr("names w in buffer 'w', which is not its one place")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

TEST_F(CheckerTest, PlacesOfPersistentValuesAreTheirsAlone) {
  // The buffers of w and dw have the same size.
  launch("conv.backward").operands[2] = buffer("w");
  EXPECT_THAT(findings(), ElementsAre("buffer 'w' is the place of w and holds something else too"));
}

// Regression: the network-wide allocation has two buffers for gradient maps, but small networks use fewer,
// which the checker refused.
TEST_F(CheckerTest, PersistentBuffersMayBeUnused) {
  add_buffer(Space::kDevice, true);
  EXPECT_THAT(findings(), IsEmpty());
}

// --- memory --------------------------------------------------------------------------------------

TEST_F(CheckerTest, NothingIsAllocatedTwice) {
  // The second allocation follows the first on its stream, before the buffer has contents, so that nothing
  // else is wrong.
  const Instruction allocation = life(InstructionKind::kAllocate, "dw");
  insert(index(life(InstructionKind::kAllocate, "dw")) + 1, allocation);
  EXPECT_THAT(findings(), Each(HasSubstr("allocates buffer 'dw', which is allocated")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

TEST_F(CheckerTest, NothingPersistentIsAllocatedOrReleased) {
  const Schedule intact = schedule_;
  const BufferId more = add_buffer(Space::kDevice, true);
  schedule_.instructions.push_back({.kind = InstructionKind::kAllocate, .buffer = more});
  EXPECT_THAT(findings(), Each(HasSubstr("allocates buffer 'more', which is allocated")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
  schedule_.instructions.back() = {.kind = InstructionKind::kRelease, .buffer = more};
  EXPECT_THAT(findings(), Each(HasSubstr("releases buffer 'more', which is not to be released")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

TEST_F(CheckerTest, NothingIsReleasedTwice) {
  const Instruction release = life(InstructionKind::kRelease, "dw");
  schedule_.instructions.push_back(release);
  EXPECT_THAT(findings(), Each(HasSubstr("releases buffer 'dw', which is not to be released")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

TEST_F(CheckerTest, EverythingIsReleased) {
  erase(index(life(InstructionKind::kRelease, "y (host)")));
  EXPECT_THAT(findings(), Contains(HasSubstr("buffer 'y (host)' is not released in step 0")));

  // If one step leaves a buffer allocated, the next step allocates it again.
  schedule_ = schedule_of(*tape_, Policy::kOffloadAll);
  const BufferId more = add_buffer(Space::kDevice, false);
  schedule_.instructions.push_back({.kind = InstructionKind::kAllocate, .buffer = more});
  EXPECT_THAT(findings(), ElementsAre("buffer 'more' is not released in step 0",
                                      HasSubstr("allocates buffer 'more', which is allocated"),  //
                                      "buffer 'more' is not released in step 1"));
}

TEST_F(CheckerTest, NothingIsUsedBeforeItIsAllocated) {
  const Instruction allocation = life(InstructionKind::kAllocate, "p");
  erase(index(life(InstructionKind::kAllocate, "p")));
  insert(index(launch("loss.forward")) + 1, allocation);
  EXPECT_THAT(findings(),
              Contains(HasSubstr("launch loss.forward, step 0) uses buffer 'p', which is not allocated")));
}

TEST_F(CheckerTest, NothingIsUsedAfterItIsReleased) {
  Instruction release = life(InstructionKind::kRelease, "y");
  std::erase_if(release.waits,
                [&](const Wait& wait) { return wait.instruction == index(launch("loss.forward")); });
  erase(index(life(InstructionKind::kRelease, "y")));
  insert(index(launch("loss.forward")), release);
  EXPECT_THAT(findings(),
              Contains(HasSubstr("launch loss.forward, step 0) uses buffer 'y', which is not allocated")));
}

TEST_F(CheckerTest, BuffersHoldWhatIsPutThere) {
  schedule_.buffers[buffer("y (host)")].bytes = 63;
  EXPECT_THAT(findings(), Each(HasSubstr("needs 64 bytes, buffer 'y (host)' has 63")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

TEST_F(CheckerTest, WorkspacesAreLargeEnough) {
  schedule_.buffers[buffer("conv.forward.workspace")].bytes = 127;
  EXPECT_THAT(findings(), Each(HasSubstr("needs 128 bytes, buffer 'conv.forward.workspace' has 127")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

// --- order ---------------------------------------------------------------------------------------

TEST_F(CheckerTest, ReadsAreOrderedAfterTheWrite) {
  launch("loss.backward").waits.clear();
  // The release comes after the prefetch only because it waits for this launch, so it is reported, too.
  EXPECT_THAT(findings(),
              Each(HasSubstr("uses buffer 'y (prefetched)' and is not ordered after instruction 21")));
  EXPECT_THAT(findings(), Contains(HasSubstr("uses buffer 'y (prefetched)' and is not ordered after "
                                             "instruction 21 (prefetch y, step 0)")));
}

TEST_F(CheckerTest, UsesAreOrderedAfterTheAllocation) {
  life(InstructionKind::kAllocate, "dw").stream = StreamRole::kLoad;
  EXPECT_THAT(findings(),
              Contains(HasSubstr("launch conv.backward, step 0) uses buffer 'dw' and is not ordered "
                                 "after instruction 28 (allocate, step 0)")));
}

TEST_F(CheckerTest, ReleasesAreOrderedAfterEveryUse) {
  for (const std::uint32_t user :
       {index(launch("loss.forward")), index(transfer(InstructionKind::kOffload, "y"))}) {
    const Schedule intact = schedule_;
    std::erase_if(life(InstructionKind::kRelease, "y").waits,
                  [&](const Wait& wait) { return wait.instruction == user; });
    EXPECT_THAT(findings(), Each(HasSubstr("changes buffer 'y' and is not ordered after instruction " +
                                           std::to_string(user))));
    EXPECT_THAT(findings(), Not(IsEmpty()));
    schedule_ = intact;
  }
}

// A network-wide allocation keeps its buffers from one step to the next, so a missing wait shows only in the
// second step.
TEST_F(CheckerTest, OrderAcrossTheBorderOfTheStep) {
  schedule_ = schedule_of(*tape_, Policy::kBaseline);
  EXPECT_THAT(findings(), IsEmpty());
  Instruction& load = transfer(InstructionKind::kLoad, "images");
  ASSERT_THAT(load.waits, ElementsAre(Wait{index(launch("conv.backward")), 1}));
  load.waits.clear();
  const auto race = [](const std::string& input, const std::string& reader) {
    return HasSubstr("load " + input + ", step 1) changes buffer '" + input +
                     "' and is not ordered after instruction " + reader + ", step 0)");
  };
  // The load of the targets comes after the previous step only because it follows the load of the images on
  // the same stream, so it is reported, too.
  EXPECT_THAT(findings(),
              ElementsAre(race("images", "2 (launch conv.forward"), race("images", "6 (launch conv.backward"),
                          race("targets", "3 (launch loss.forward")));
}

// --- content -------------------------------------------------------------------------------------

TEST_F(CheckerTest, OperandsLieWhereTheyAreSaidTo) {
  // loss.backward reads y from the buffer of p; both values are on the device and have the same size.
  launch("loss.backward").operands[1] = buffer("p");
  EXPECT_THAT(findings(), Contains(HasSubstr("reads y from buffer 'p', which holds p")));
}

TEST_F(CheckerTest, NothingIsReadThatNobodyHasWritten) {
  erase(index(transfer(InstructionKind::kPrefetch, "y")));
  EXPECT_THAT(findings(), Contains(HasSubstr("launch loss.backward, step 0) reads y from buffer 'y "
                                             "(prefetched)', which holds nothing")));
}

// All instructions are ordered, but the prefetch comes before the offload of its step. So the prefetch
// fetches the copy of the previous step.
TEST_F(CheckerTest, VersionsOfTheStepBefore) {
  schedule_ = schedule_of(*tape_, Policy::kBaseline);
  const ValueId y = value_named(*tape_, "y");
  const BufferId host = add_buffer(Space::kHost, true);
  insert(index(launch("loss.forward")), {.kind = InstructionKind::kPrefetch,
                                         .stream = StreamRole::kCompute,
                                         .value = y,
                                         .buffer = buffer("y"),
                                         .host_buffer = host});
  schedule_.instructions.push_back({.kind = InstructionKind::kOffload,
                                    .stream = StreamRole::kCompute,
                                    .value = y,
                                    .buffer = buffer("y"),
                                    .host_buffer = host});
  EXPECT_THAT(findings(),
              ElementsAre(HasSubstr("prefetch y, step 0) reads y from buffer 'more', which holds nothing"),
                          HasSubstr("prefetch y, step 1) reads version 1 of y and means version 2")));
}

// An update runs before the last reader of the old weights.
TEST_F(CheckerTest, VersionsOfParameters) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId w = draft.value("w", ValueKind::kParameter, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 8);
  const std::uint32_t layer = draft.layer("layer");
  draft.op("forward", layer, Phase::kForward, {x, w}, {metrics});
  draft.op("backward", layer, Phase::kBackward, {x}, {dw});
  draft.op("backward2", layer, Phase::kBackward, {w}, {draft.value("dx", ValueKind::kGradientMap, 8)});
  draft.op("update", layer, Phase::kUpdate, {w, dw}, {w});
  const TapePtr tape = draft.finish();
  Schedule schedule = schedule_of(*tape, Policy::kBaseline);
  EXPECT_THAT(check_schedule(*tape, schedule), IsEmpty());
  const auto at = [&](OpId op) {
    return std::ranges::find_if(schedule.instructions, [&](const Instruction& it) {
      return it.kind == InstructionKind::kLaunch && it.op == op;
    });
  };
  std::iter_swap(at(2), at(3));
  EXPECT_THAT(check_schedule(*tape, schedule),
              ElementsAre(HasSubstr("launch backward2, step 0) reads version 2 of w and means version 1"),
                          HasSubstr("launch backward2, step 1) reads version 3 of w and means version 2")));
}

TEST_F(CheckerTest, OperandsOverlapOnlyWithPermission) {
  // dw is written into the memory of the images. No later op reads the images, but this op does not permit
  // the overlap.
  Instruction& filter = launch("conv.backward");
  const BufferId images = filter.operands[0];
  filter.operands[2] = images;
  launch("w.update").operands[1] = images;
  for (Instruction& it : schedule_.instructions) {
    if (it.kind == InstructionKind::kRelease && it.buffer == images) {
      it.waits = {{index(launch("conv.backward")), 0}};
    }
  }
  const Instruction release = life(InstructionKind::kRelease, "images (prefetched)");
  erase(index(life(InstructionKind::kRelease, "images (prefetched)")));
  schedule_.instructions.push_back(release);
  schedule_.instructions.back().waits = {{index(launch("w.update")), 0}};
  EXPECT_THAT(findings(), Each(HasSubstr("has two operands in buffer 'images (prefetched)'")));
  EXPECT_THAT(findings(), Not(IsEmpty()));
}

// --- how often -----------------------------------------------------------------------------------

TEST_F(CheckerTest, EveryOpIsLaunched) {
  erase(index(launch("w.update")));
  EXPECT_THAT(findings(), Contains("w.update is launched 0 times in step 0"));
}

TEST_F(CheckerTest, NoOpIsLaunchedTwice) {
  const Instruction again = launch("loss.forward");
  insert(index(launch("loss.forward")) + 1, again);
  EXPECT_THAT(findings(), Contains("loss.forward is launched 2 times in step 0"));
  EXPECT_THAT(findings(), Contains(HasSubstr("makes metrics, which has been made already")));
}

TEST_F(CheckerTest, EveryInputIsLoadedOnce) {
  const Instruction load = transfer(InstructionKind::kLoad, "targets");
  insert(index(transfer(InstructionKind::kLoad, "targets")) + 1, load);
  EXPECT_THAT(findings(), Contains("targets is loaded 2 times in step 0"));
  erase(index(transfer(InstructionKind::kLoad, "targets")));
  erase(index(transfer(InstructionKind::kLoad, "targets")));
  EXPECT_THAT(findings(), Contains("targets is loaded 0 times in step 0"));
}

TEST_F(CheckerTest, TheMetricsAreReadOnce) {
  const Instruction read = transfer(InstructionKind::kReadResult, "metrics");
  insert(index(transfer(InstructionKind::kReadResult, "metrics")) + 1, read);
  EXPECT_THAT(findings(), Contains("metrics is read by the host 2 times in step 0"));
}

TEST_F(CheckerTest, AnEmptyScheduleIsNotRight) {
  schedule_.instructions.clear();
  EXPECT_THAT(findings(), Contains("conv.forward is launched 0 times in step 0"));
  EXPECT_THAT(findings(), Contains("images is loaded 0 times in step 1"));
}

// --- the exception -------------------------------------------------------------------------------

TEST_F(CheckerTest, TheExceptionSaysWhatAndHowMuchMore) {
  erase(index(life(InstructionKind::kRelease, "dw")));
  try {
    require_valid(*tape_, schedule_);
    FAIL() << "nothing was thrown";
  } catch (const ScheduleError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the schedule of 'by hand' is not right: buffer 'dw' is not released in "
                          "step 0 (and 2 more)"));
  }
}

// --- what ranks do together ----------------------------------------------------------------------

class CollectiveCheckerTest : public ::testing::Test {
 protected:
  std::string finding() const {
    const std::vector<std::string> all = check_schedule(*tape_, schedule_);
    return all.empty() ? "" : all.front();
  }
  // The first instruction for which is() returns true.
  template <class Is>
  Instruction& first(const Is& is) {
    return *std::ranges::find_if(schedule_.instructions, is);
  }
  Instruction& first_reduction() {
    return first([](const Instruction& it) { return it.stream == StreamRole::kReduce; });
  }

  const TapePtr tape_ = collective_tape();
  Schedule schedule_ = schedule_of(*tape_, Policy::kOffloadAll);
};

TEST_F(CollectiveCheckerTest, AcceptsTheUnbroken) {
  EXPECT_EQ(finding(), "");
}

TEST_F(CollectiveCheckerTest, CollectivesAreOnTheStreamForThem) {
  for (const StreamRole role : {StreamRole::kCompute, StreamRole::kOffload, StreamRole::kLoad}) {
    Instruction& reduction = first_reduction();
    reduction.stream = role;
    EXPECT_THAT(finding(), HasSubstr("is malformed")) << to_string(role);
    reduction.stream = StreamRole::kReduce;
  }
}

TEST_F(CollectiveCheckerTest, NothingElseIsOnThatStream) {
  for (const InstructionKind kind : {InstructionKind::kLaunch, InstructionKind::kLoad,
                                     InstructionKind::kOffload, InstructionKind::kReadResult}) {
    Instruction& other =
        first([kind](const Instruction& it) { return it.kind == kind && it.stream != StreamRole::kReduce; });
    const StreamRole before = std::exchange(other.stream, StreamRole::kReduce);
    EXPECT_THAT(finding(), HasSubstr("is malformed"));
    other.stream = before;
  }
}

TEST_F(CollectiveCheckerTest, CollectivesAreInPlace) {
  Instruction& reduction = first_reduction();
  const std::size_t reads = tape_->op(reduction.op).reads.size();
  for (std::size_t operand = 0; operand < reads; ++operand) {
    const BufferId before = reduction.operands[reads + operand];
    for (BufferId other = 0; other < schedule_.buffers.size(); ++other) {
      if (other != before && schedule_.buffers[other].space == Space::kDevice) {
        reduction.operands[reads + operand] = other;
        EXPECT_THAT(finding(), HasSubstr("is malformed")) << schedule_.buffers[other].name;
      }
    }
    reduction.operands[reads + operand] = before;
  }
}

// The other ranks would not take part in the second launch.
TEST_F(CollectiveCheckerTest, CollectivesAreNotLaunchedAgain) {
  const auto at = &first_reduction() - schedule_.instructions.data();
  Instruction again = schedule_.instructions[static_cast<std::size_t>(at)];
  again.kind = InstructionKind::kRecompute;
  for (const StreamRole role : {StreamRole::kReduce, StreamRole::kCompute}) {
    again.stream = role;
    Schedule broken = schedule_;
    broken.instructions.insert(broken.instructions.begin() + at + 1, again);
    for (Instruction& it : broken.instructions) {
      for (Wait& wait : it.waits) {
        wait.instruction += wait.instruction > at ? 1 : 0;
      }
    }
    EXPECT_THAT(check_schedule(*tape_, broken), Contains(HasSubstr("is malformed"))) << to_string(role);
  }
}

}  // namespace
}  // namespace vdnn::testing
