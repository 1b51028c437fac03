// Tests of the oracle with hand-made races, some of which show only in a rare order.

#include "tests/plan/oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/tapes.h"

namespace vdnn::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two ops in a row, then the metrics. Every value has its own persistent buffer.
TapePtr three_op_tape() {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 8);
  const ValueId z = draft.value("z", ValueKind::kFeatureMap, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const std::uint32_t layer = draft.layer("layer");
  draft.op("first", layer, Phase::kForward, {x}, {y});
  draft.op("second", layer, Phase::kForward, {y}, {z});
  draft.op("third", layer, Phase::kForward, {z}, {metrics});
  return draft.finish();
}

constexpr BufferId kX = 0;
constexpr BufferId kY = 1;
constexpr BufferId kZ = 2;
constexpr BufferId kMetrics = 3;
constexpr BufferId kHost = 4;
constexpr BufferId kSpare = 5;
constexpr ValueId kValueY = 1;

// Collects instructions and returns their numbers.
class ScheduleDraft {
 public:
  explicit ScheduleDraft(std::vector<Buffer> buffers) {
    schedule_.algorithms.assign(3, 0);
    schedule_.buffers = std::move(buffers);
  }
  std::uint32_t add(Instruction instruction) {
    schedule_.instructions.push_back(std::move(instruction));
    return static_cast<std::uint32_t>(schedule_.instructions.size() - 1);
  }
  std::uint32_t load_x(std::vector<Wait> waits) {
    return add({.kind = InstructionKind::kLoad,
                .stream = StreamRole::kLoad,
                .value = 0,
                .buffer = kX,
                .waits = std::move(waits)});
  }
  std::uint32_t launch(OpId op, BufferId from, BufferId to, std::vector<Wait> waits = {}) {
    return add({.kind = InstructionKind::kLaunch,
                .stream = StreamRole::kCompute,
                .op = op,
                .operands = {from, to, kNone},
                .waits = std::move(waits)});
  }
  std::uint32_t copy_y(InstructionKind kind, StreamRole stream, BufferId device, BufferId host,
                       std::vector<Wait> waits = {}) {
    return add({.kind = kind,
                .stream = stream,
                .value = kValueY,
                .buffer = device,
                .host_buffer = host,
                .waits = std::move(waits)});
  }
  void read_result(std::uint32_t after) {
    add({.kind = InstructionKind::kReadResult,
         .stream = StreamRole::kOffload,
         .value = 3,
         .buffer = kMetrics,
         .waits = {{.instruction = after, .steps_ago = 0}}});
  }
  Schedule finish() { return std::move(schedule_); }

 private:
  Schedule schedule_;
};

Buffer persistent(const std::string& name, Space space = Space::kDevice) {
  return {.name = name, .bytes = 8, .space = space, .persistent = true};
}

std::vector<Buffer> buffers() {
  return {persistent("x"),
          persistent("y"),
          persistent("z"),
          persistent("metrics"),
          persistent("host", Space::kHost),
          persistent("spare")};
}

struct ChainWaits {
  bool load_waits_for_last_reader = true;
  bool third_waits_for_metrics = true;
};

Schedule chain_schedule(const ChainWaits& waits = {}) {
  ScheduleDraft draft(buffers());
  const std::uint32_t load =
      draft.load_x(waits.load_waits_for_last_reader ? std::vector<Wait>{{1, 1}} : std::vector<Wait>{});
  draft.launch(0, kX, kY, {{load, 0}});
  draft.launch(1, kY, kZ);
  const std::uint32_t third = draft.launch(
      2, kZ, kMetrics, waits.third_waits_for_metrics ? std::vector<Wait>{{4, 1}} : std::vector<Wait>{});
  draft.read_result(third);
  return draft.finish();
}

std::string objection(const Tape& tape, const Schedule& schedule) {
  const Oracle oracle(tape, schedule);
  std::string everything = oracle.objection(schedule, Exploration::kEverything);
  EXPECT_EQ(oracle.objection(schedule, Exploration::kConflicts).empty(), everything.empty());
  return everything;
}

TEST(Oracle, AcceptsWhatIsOrdered) {
  EXPECT_THAT(objection(*three_op_tape(), chain_schedule()), IsEmpty());
}

TEST(Oracle, SeesRacesAcrossTheBorderOfTheStep) {
  EXPECT_THAT(objection(*three_op_tape(), chain_schedule({.load_waits_for_last_reader = false})),
              HasSubstr("launch first (instruction 1, step 0) reads something else"));
  EXPECT_THAT(objection(*three_op_tape(), chain_schedule({.third_waits_for_metrics = false})),
              HasSubstr("read_result metrics (instruction 4, step 0) reads something else"));
}

// y travels between host and device forty times and ends in z's buffer, which the second op then overwrites.
// The order of the list is right. Only an order in which the last copy runs between the second and the third
// op is wrong, and random orders hardly ever contain that.
TEST(Oracle, SeesARaceThatOnlyARareOrderShows) {
  constexpr std::uint32_t kTrips = 40;
  const TapePtr tape = three_op_tape();
  const auto schedule = [](bool ordered) {
    const std::uint32_t third = 3 + kTrips + 1;
    ScheduleDraft draft(buffers());
    const std::uint32_t load = draft.load_x({{1, 1}});
    const std::uint32_t first = draft.launch(0, kX, kY, {{load, 0}, {2, 1}});
    draft.copy_y(InstructionKind::kOffload, StreamRole::kPrefetch, kY, kHost, {{first, 0}});
    for (std::uint32_t trip = 1; trip < kTrips; ++trip) {
      draft.copy_y(InstructionKind::kPrefetch, StreamRole::kPrefetch, kSpare, kHost);
    }
    const std::uint32_t last =
        draft.copy_y(InstructionKind::kPrefetch, StreamRole::kPrefetch, kZ, kHost, {{third, 1}});
    draft.launch(1, kY, kZ, ordered ? std::vector<Wait>{{last, 0}} : std::vector<Wait>{});
    EXPECT_EQ(draft.launch(2, kZ, kMetrics, {{third + 1, 1}}), third);
    draft.read_result(third);
    return draft.finish();
  };
  EXPECT_THAT(objection(*tape, schedule(true)), IsEmpty());
  EXPECT_THAT(objection(*tape, schedule(false)), HasSubstr("launch second, step 0) as early as possible"));
}

TEST(Oracle, SeesAVersionOfTheStepBefore) {
  ScheduleDraft draft(buffers());
  // The copy back comes before the copy out. It fetches nothing in the first step and the old y in the
  // second.
  draft.copy_y(InstructionKind::kPrefetch, StreamRole::kCompute, kZ, kHost);
  const std::uint32_t load = draft.load_x({{2, 1}});
  draft.launch(0, kX, kY, {{load, 0}});
  draft.copy_y(InstructionKind::kOffload, StreamRole::kCompute, kY, kHost);
  draft.launch(1, kY, kZ);
  const std::uint32_t third = draft.launch(2, kZ, kMetrics, {{6, 1}});
  draft.read_result(third);
  EXPECT_THAT(objection(*three_op_tape(), draft.finish()),
              HasSubstr("prefetch y (instruction 0, step 0) reads"));
}

TEST(Oracle, SeesMemoryThatIsReleasedTooEarly) {
  const TapePtr tape = three_op_tape();
  const auto schedule = [](OpId last_user) {
    std::vector<Buffer> all = buffers();
    all[kZ].persistent = false;
    ScheduleDraft draft(std::move(all));
    const std::uint32_t load = draft.load_x({{2, 1}});
    draft.add({.kind = InstructionKind::kAllocate, .stream = StreamRole::kCompute, .buffer = kZ});
    draft.launch(0, kX, kY, {{load, 0}});
    draft.launch(1, kY, kZ);
    const std::uint32_t third = draft.launch(2, kZ, kMetrics, {{6, 1}});
    draft.add({.kind = InstructionKind::kRelease, .buffer = kZ, .waits = {{last_user + 2, 0}}});
    draft.read_result(third);
    return draft.finish();
  };
  EXPECT_THAT(objection(*tape, schedule(2)), IsEmpty());
  EXPECT_THAT(objection(*tape, schedule(1)), HasSubstr("launch third (instruction 4, step 0) reads memory"));
  EXPECT_THAT(objection(*tape, schedule(0)), HasSubstr("memory that is not allocated"));
}

TEST(Oracle, SeesAnotherMeaningThanTheTapes) {
  const TapePtr tape = three_op_tape();
  Schedule swapped = chain_schedule();
  swapped.instructions[3].operands = {kY, kMetrics, kNone};
  EXPECT_THAT(objection(*tape, swapped), HasSubstr("launch third (instruction 3, step 0) reads something"));

  // This op must not overwrite its inputs.
  Schedule in_place = chain_schedule();
  in_place.instructions[2].operands = {kY, kY, kNone};
  in_place.instructions[3].operands = {kY, kMetrics, kNone};
  EXPECT_THAT(objection(*tape, in_place), HasSubstr("launch third (instruction 3, step 0) reads something"));
}

TEST(Oracle, SeesPersistentValuesThatEndAsSomethingElse) {
  const TapePtr tape = tiny_tape();
  const Schedule intact = schedule_of(*tape, Policy::kOffloadNone);
  Schedule broken = intact;
  for (Instruction& it : broken.instructions) {
    if (it.kind == InstructionKind::kLaunch && tape->op(it.op).name == "w.update") {
      it.operands[2] = it.operands[1];  // writes into the gradient's buffer
    }
  }
  const Oracle oracle(*tape, intact);
  EXPECT_THAT(oracle.objection(intact, Exploration::kEverything), IsEmpty());
  EXPECT_THAT(oracle.objection(broken, Exploration::kEverything), HasSubstr("reads something else"));
}

TEST(Oracle, RefusesWhatIsBrokenByDefinition) {
  const TapePtr tape = tiny_tape();
  const Schedule intact = schedule_of(*tape, Policy::kOffloadAll);
  const Oracle oracle(*tape, intact);
  const auto verdict = [&](const Schedule& broken) {
    return oracle.objection(broken, Exploration::kConflicts);
  };
  const auto last = static_cast<std::uint32_t>(intact.instructions.size() - 1);
  ASSERT_EQ(intact.instructions[last].kind, InstructionKind::kRelease);
  for (const Wait wait : {Wait{0, 0}, Wait{1, 0}, Wait{last, 1}, Wait{0, 2}, Wait{last + 1, 1}}) {
    Schedule broken = intact;
    broken.instructions[0].waits = {wait};
    const bool there = wait.instruction <= last && wait.steps_ago < 2;
    EXPECT_THAT(verdict(broken), HasSubstr(there ? "a wait" : "not there"))
        << wait.instruction << ", " << wait.steps_ago;
  }
  for (std::size_t index = 0; index < intact.instructions.size(); ++index) {
    const InstructionKind kind = intact.instructions[index].kind;
    if (kind == InstructionKind::kOffload || kind == InstructionKind::kPrefetch) {
      continue;
    }
    Schedule twice = intact;
    twice.instructions.push_back(intact.instructions[index]);
    EXPECT_THAT(verdict(twice), HasSubstr("not exactly once")) << index;
  }
}

// Covers the sizes and the spaces of the buffers that instructions name.
TEST(Oracle, SeesOperandsThatDoNotFit) {
  const TapePtr tape = tiny_tape();
  const Schedule intact = schedule_of(*tape, Policy::kOffloadAll);
  const Oracle oracle(*tape, intact);
  for (BufferId id = 0; id < intact.buffers.size(); ++id) {
    Schedule larger = intact;
    ++larger.buffers[id].bytes;
    EXPECT_THAT(oracle.objection(larger, Exploration::kEverything), IsEmpty()) << id;
    Schedule smaller = intact;
    --smaller.buffers[id].bytes;
    EXPECT_THAT(oracle.objection(smaller, Exploration::kEverything), HasSubstr("too small")) << id;
    Schedule elsewhere = intact;
    Space& space = elsewhere.buffers[id].space;
    space = space == Space::kDevice ? Space::kHost : Space::kDevice;
    EXPECT_THAT(oracle.objection(elsewhere, Exploration::kEverything), HasSubstr("wrong space")) << id;
  }
}

TEST(Oracle, DoesNotMindABufferThatNobodyNames) {
  const TapePtr tape = tiny_tape();
  const Schedule intact = schedule_of(*tape, Policy::kOffloadAll);
  Schedule more = intact;
  more.buffers.push_back({.name = "spare", .bytes = 8});
  EXPECT_THAT(Oracle(*tape, intact).objection(more, Exploration::kEverything), IsEmpty());
}

}  // namespace
}  // namespace vdnn::testing
