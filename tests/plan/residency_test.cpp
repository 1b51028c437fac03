#include "src/plan/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/plan/tapes.h"

namespace vdnn::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::uint32_t launched_at(const Tape& tape, const Schedule& schedule, const std::string& op,
                          InstructionKind kind = InstructionKind::kLaunch) {
  const auto found = std::ranges::find_if(schedule.instructions, [&](const Instruction& instruction) {
    return instruction.kind == kind && instruction.op == op_named(tape, op);
  });
  EXPECT_NE(found, schedule.instructions.end()) << op;
  return static_cast<std::uint32_t>(found - schedule.instructions.begin());
}

// Names of the values on the device, in order of allocation; "-" is workspace.
std::vector<std::string> present_at(const Tape& tape, const Schedule& schedule, std::uint32_t instruction) {
  std::vector<std::string> names;
  for (const Residence& residence : residences(tape, schedule)) {
    if (residence.present(instruction)) {
      const ValueId value = residence.value_at(instruction);
      names.push_back(value == kNone ? "-" : tape.value(value).name);
    }
  }
  return names;
}

// images 64, targets 8, w 16 (persistent), y 64, metrics 8, p 64, dy 64 in p's place, dw 16.
TEST(Residency, NamesWhatIsThere) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadNone);
  const auto at = [&](const std::string& op) {
    return present_at(*tape, schedule, launched_at(*tape, schedule, op));
  };
  EXPECT_THAT(at("conv.forward"), ElementsAre("w", "images", "targets", "y", "-"));
  EXPECT_THAT(at("loss.forward"), ElementsAre("w", "images", "targets", "y", "metrics", "p"));
  EXPECT_THAT(at("loss.backward"), ElementsAre("w", "images", "y", "dy"));
  EXPECT_THAT(at("conv.backward"), ElementsAre("w", "images", "dy", "dw"));
  EXPECT_THAT(at("w.update"), ElementsAre("w", "dw"));
}

TEST(Residency, CountsTheBytes) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadNone);
  const std::vector<std::uint64_t> bytes = bytes_in_use(schedule);
  ASSERT_EQ(bytes.size(), schedule.instructions.size());
  EXPECT_EQ(bytes.front(), 16 + 64);
  EXPECT_EQ(bytes.back(), 16);
  EXPECT_EQ(bytes[launched_at(*tape, schedule, "conv.forward")], 64 + 8 + 16 + 64 + 128);
  EXPECT_EQ(bytes[launched_at(*tape, schedule, "loss.backward")], 64 + 16 + 64 + 64);
  EXPECT_EQ(fullest_launch(schedule, bytes), launched_at(*tape, schedule, "conv.forward"));
  EXPECT_EQ(fullest_op(*tape, schedule), op_named(*tape, "conv.forward"));
}

// The value is on the device twice, and only on the host in between.
TEST(Residency, AnOffloadedValueIsThereTwice) {
  const TapePtr tape = tiny_tape();
  const ValueId images = value_named(*tape, "images");
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
  std::vector<Residence> stays;
  for (const Residence& residence : residences(*tape, schedule)) {
    if (residence.value_at(residence.begin) == images) {
      stays.push_back(residence);
    }
  }
  ASSERT_EQ(stays.size(), 2U);
  EXPECT_LT(stays[0].end, stays[1].begin);
  EXPECT_EQ(schedule.instructions[stays[0].holdings[0].first].kind, InstructionKind::kLoad);
  EXPECT_EQ(schedule.instructions[stays[1].holdings[0].first].kind, InstructionKind::kPrefetch);
  EXPECT_EQ(stays[1].holdings[0].last, launched_at(*tape, schedule, "conv.backward"));
}

// If a gradient overwrites a saved tensor, the buffer contains first one and then the other.
TEST(Residency, ValuesTakeTurns) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadNone);
  const auto all = residences(*tape, schedule);
  const auto shared =
      std::ranges::find_if(all, [](const Residence& residence) { return residence.holdings.size() == 2; });
  ASSERT_NE(shared, all.end());
  const std::uint32_t made = launched_at(*tape, schedule, "loss.forward");
  const std::uint32_t overwritten = launched_at(*tape, schedule, "loss.backward");
  EXPECT_EQ(shared->holdings[0].value, value_named(*tape, "p"));
  EXPECT_EQ(shared->holdings[0].first, made);
  EXPECT_EQ(shared->holdings[0].last, overwritten);
  EXPECT_EQ(shared->holdings[1].value, value_named(*tape, "dy"));
  EXPECT_EQ(shared->holdings[1].last, launched_at(*tape, schedule, "conv.backward"));
  EXPECT_EQ(shared->value_at(shared->begin), value_named(*tape, "p"));
  EXPECT_EQ(shared->value_at(overwritten - 1), value_named(*tape, "p"));
  EXPECT_EQ(shared->value_at(overwritten), value_named(*tape, "dy"));
}

// On every schedule, the sum over the resident values equals the counted bytes. Every operand of a launch is
// resident, and no value is used while it is not resident.
TEST(Residency, AgreesWithTheScheduleEverywhere) {
  for (const Subject& subject : all_subjects()) {
    SCOPED_TRACE(subject.name);
    const Schedule& schedule = subject.schedule;
    const std::vector<Residence> all = residences(*subject.tape, schedule);
    const std::vector<std::uint64_t> bytes = bytes_in_use(schedule);
    for (std::uint32_t when = 0; when < schedule.instructions.size(); ++when) {
      std::uint64_t sum = 0;
      std::vector<BufferId> there;
      for (const Residence& residence : all) {
        if (residence.present(when)) {
          sum += schedule.buffers[residence.buffer].bytes;
          there.push_back(residence.buffer);
        }
      }
      ASSERT_EQ(sum, bytes[when]) << when;
      for (const BufferUse& use : uses(*subject.tape, schedule.instructions[when])) {
        if (schedule.buffers[use.buffer].space == Space::kDevice) {
          ASSERT_THAT(there, Contains(use.buffer)) << when;
        }
      }
    }
    for (const Residence& residence : all) {
      for (const Holding& holding : residence.holdings) {
        EXPECT_LE(residence.begin, holding.first);
        EXPECT_LE(holding.first, holding.last);
        EXPECT_LT(holding.last, residence.end);
      }
    }
  }
}

TEST(Residency, OfNothingIsNothing) {
  const Tape tape({});
  EXPECT_THAT(residences(tape, {}), IsEmpty());
  EXPECT_THAT(bytes_in_use({}), IsEmpty());
  EXPECT_EQ(most_bytes_in_use({}), 0U);
  EXPECT_EQ(fullest_launch({}, {}), kNone);
  EXPECT_EQ(fullest_op(tape, {}), 0U);
}

}  // namespace
}  // namespace vdnn::testing
