#include "src/report/memory_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/plan/tapes.h"

namespace vdnn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> lines_of(const Tape& tape, const MemoryUse& use) {
  std::vector<std::string> lines;
  for (const Occupant& occupant : use.occupants) {
    lines.push_back(occupant.name + ": " + to_string(occupant.reason) +
                    (occupant.needed_by == kNone ? "" : ", " + tape.op(occupant.needed_by).name));
  }
  return lines;
}

MemoryUse memory_of(const Tape& tape, const Schedule& schedule, const std::string& op) {
  const auto launch = std::ranges::find_if(schedule.instructions, [&](const Instruction& instruction) {
    return instruction.kind == InstructionKind::kLaunch && instruction.op == op_named(tape, op);
  });
  return memory_at(tape, schedule, static_cast<std::uint32_t>(launch - schedule.instructions.begin()), 32);
}

// images 64, targets 8, w 16 (persistent), y 64, metrics 8, p 64, dy 64 in p's place, dw 16.
TEST(MemoryUse, SaysWhoIsThereAndWhy) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadNone);
  const MemoryUse fullest = fullest_moment(*tape, schedule, 32);
  EXPECT_EQ(fullest.bytes, 64 + 8 + 16 + 64 + 128);
  EXPECT_EQ(fullest.aligned_bytes, 64 + 32 + 32 + 64 + 128);
  EXPECT_EQ(schedule.instructions.at(fullest.launch).op, op_named(*tape, "conv.forward"));
  EXPECT_THAT(lines_of(*tape, fullest),
              ElementsAre("conv.forward.workspace: workspace", "images: operand, conv.backward",
                          "y: operand, loss.forward", "w: parameter", "targets: needed, loss.forward"));
  EXPECT_THAT(lines_of(*tape, memory_of(*tape, schedule, "loss.backward")),
              UnorderedElementsAre("w: parameter", "images: needed, conv.backward", "y: operand",
                                   "dy: operand, conv.backward"));
}

// The offloaded images use memory until a wait proves that the copy is done, and again from the prefetch
// ahead of their reader.
TEST(MemoryUse, TellsWhatIsOnItsWay) {
  const TapePtr tape = tiny_tape();
  Plan plan = plan_of(*tape, Policy::kOffloadNone);
  plan.transfers = {{.value = value_named(*tape, "images"),
                     .offload_with = op_named(*tape, "conv.forward"),
                     .release_with = op_named(*tape, "loss.forward"),
                     .prefetch_with = op_named(*tape, "loss.backward")}};
  const Schedule schedule = make_schedule(*tape, plan);
  EXPECT_THAT(lines_of(*tape, memory_of(*tape, schedule, "loss.forward")),
              ::testing::Contains("images: leaving"));
  EXPECT_THAT(lines_of(*tape, memory_of(*tape, schedule, "loss.backward")),
              ::testing::Contains("images: fetched, conv.backward"));
}

TEST(MemoryUse, OfTheBaselineIsForGood) {
  const TapePtr tape = tiny_tape();
  const MemoryUse use = memory_of(*tape, schedule_of(*tape, Policy::kBaseline), "w.update");
  EXPECT_THAT(lines_of(*tape, use), ::testing::Contains("workspace: allocated for good"));
  EXPECT_THAT(lines_of(*tape, use), ::testing::Contains("dw: operand"));
}

// At every op, the bytes are at least the irreducible ones and equal the sum over the occupants.
TEST(MemoryUse, IsNeverBelowWhatIsIrreducible) {
  for (const Subject& subject : all_subjects()) {
    SCOPED_TRACE(subject.name);
    const Irreducible most = most_irreducible(*subject.tape, {});
    EXPECT_GE(fullest_moment(*subject.tape, subject.schedule, 1).bytes, most.bytes());
    for (OpId op = 0; op < subject.tape->ops().size(); ++op) {
      const MemoryUse use = memory_of(*subject.tape, subject.schedule, subject.tape->op(op).name);
      std::uint64_t sum = 0;
      for (const Occupant& occupant : use.occupants) {
        sum += occupant.bytes;
        // Every resident value is needed again, except for copies that recomputation makes on the way.
        EXPECT_NE(occupant.reason, Reason::kUnused) << occupant.name;
      }
      EXPECT_EQ(sum, use.bytes);
      const Irreducible least = irreducible_at(*subject.tape, {}, op);
      EXPECT_GE(use.bytes, least.bytes()) << subject.tape->op(op).name;
      EXPECT_LE(least.bytes(), most.bytes());
    }
  }
}

TEST(Irreducible, CountsOperandsAndTheLeastWorkspace) {
  const TapePtr tape = tiny_tape();
  const Irreducible convolution = irreducible_at(*tape, {}, op_named(*tape, "conv.forward"));
  EXPECT_EQ(convolution.persistent_bytes, 16);
  EXPECT_EQ(convolution.operand_bytes, 64 + 64);
  EXPECT_EQ(convolution.workspace_bytes, 0);
  // dy overwrites p.
  EXPECT_EQ(irreducible_at(*tape, {}, op_named(*tape, "loss.backward")).operand_bytes, 64 + 64);
  PlanOptions recorded;
  for (const Op& op : tape->ops()) {
    recorded.recorded[op.name] = op.algorithms.front().name;
  }
  EXPECT_EQ(irreducible_at(*tape, recorded, op_named(*tape, "conv.forward")).workspace_bytes, 128);
  EXPECT_EQ(most_irreducible(*tape, {}).op, op_named(*tape, "loss.forward"));
  EXPECT_EQ(most_irreducible(*tape, recorded).op, op_named(*tape, "conv.forward"));
}

TEST(MemoryUse, OfNothingIsNothing) {
  EXPECT_EQ(fullest_moment(Tape({}), {}, 32).launch, kNone);
  EXPECT_EQ(most_irreducible(Tape({}), {}).op, kNone);
}

}  // namespace
}  // namespace vdnn::testing
