#pragma once
// For tests on hand-made tapes. Makes plans from the names of values and ops, and describes schedules with
// one text per instruction.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tests/plan/oracle.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn::testing {

struct Drop {
  std::string value;
  std::string with;
};

inline Plan plan_with(const Tape& tape, const std::vector<Drop>& drops) {
  Plan plan = plan_of(tape, Policy::kOffloadNone);
  for (const Drop& drop : drops) {
    plan.recomputations.push_back(
        {.value = value_named(tape, drop.value), .with = op_named(tape, drop.with)});
  }
  return plan;
}

inline Transfer transfer(const Tape& tape, const std::string& value, const std::string& offload_with,
                         const std::string& release_with, const std::string& prefetch_with) {
  return {.value = value_named(tape, value),
          .offload_with = op_named(tape, offload_with),
          .release_with = op_named(tape, release_with),
          .prefetch_with = op_named(tape, prefetch_with)};
}

inline void expect_right(const Tape& tape, const Schedule& schedule, const std::string& name = "") {
  EXPECT_THAT(check_schedule(tape, schedule), ::testing::IsEmpty()) << name;
  EXPECT_EQ(Oracle(tape, schedule).objection(schedule, Exploration::kEverything), "") << name;
}

// The launches from op `from` to op `to`, and the allocations and releases of these buffers.
struct Excerpt {
  std::string from;
  std::string to;
  std::set<std::string> buffers;
};

inline std::vector<std::string> told(const Tape& tape, const Schedule& schedule, const Excerpt& excerpt) {
  std::vector<std::string> result;
  bool inside = false;
  for (const Instruction& it : schedule.instructions) {
    const bool launch = it.kind == InstructionKind::kLaunch;
    inside = inside || (launch && tape.op(it.op).name == excerpt.from);
    if (inside && it.buffer != kNone && excerpt.buffers.contains(schedule.buffers[it.buffer].name)) {
      result.push_back(to_string(it.kind) + " " + schedule.buffers[it.buffer].name);
    } else if (inside && is_launch(it.kind)) {
      result.push_back(describe(tape, it));
    }
    if (launch && tape.op(it.op).name == excerpt.to) {
      break;
    }
  }
  return result;
}

inline const Instruction& recompute_of(const Tape& tape, const Schedule& schedule, const std::string& op) {
  const auto found = std::ranges::find_if(schedule.instructions, [&](const Instruction& it) {
    return it.kind == InstructionKind::kRecompute && tape.op(it.op).name == op;
  });
  return found == schedule.instructions.end() ? throw InvalidArgument(op + " is not launched again") : *found;
}

inline std::string operand_name(const Schedule& schedule, const Instruction& instruction,
                                std::size_t operand) {
  const BufferId buffer = instruction.operands.at(operand);
  return buffer == kNone ? "none" : schedule.buffers[buffer].name;
}

// The message of the InvalidArgument that lowering throws; empty if lowering succeeds.
inline std::string refusal(const Tape& tape, const Plan& plan) {
  try {
    make_schedule(tape, plan);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

}  // namespace vdnn::testing
