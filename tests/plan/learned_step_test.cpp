// Steps of foreign programs: the file, its refusals, and the tape of a step.

#include "vdnn/learned_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/plan/recomputation.h"
#include "tests/plan/random_step.h"
#include "tests/report/json_schema.h"
#include "tests/temporary_directory.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::learned_step_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::peak_of;
using testing::RandomStep;
using testing::small_step;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kSeeds = 200;

// --- the file ----------------------------------------------------------------------------------------------

TEST(LearnedStepFile, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_learned_step(to_text(small_step())), small_step());
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const LearnedStep step = RandomStep(seed).build();
    EXPECT_EQ(parse_learned_step(to_text(step)), step) << "seed " << seed;
  }
}

TEST(LearnedStepFile, KeepsToItsSchema) {
  const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/learned_step.schema.json");
  EXPECT_THAT(testing::SchemaCheck::errors(schema, testing::Json::parse(to_text(small_step()))), IsEmpty());
  LearnedStep without_batch = small_step();
  without_batch.batch.reset();
  EXPECT_THAT(testing::SchemaCheck::errors(schema, testing::Json::parse(to_text(without_batch))), IsEmpty());
}

TEST(LearnedStepFile, ExamplesAreRead) {
  for (const char* name : {"resnet18", "unet"}) {
    const LearnedStep step = read_learned_step(std::string(VDNN_STEPS_DIRECTORY) + "/" + name + ".json");
    EXPECT_EQ(step.device, "cpu");
    EXPECT_EQ(peak_of(*to_tape(step, batch_of(step))), step.peak_bytes) << name;
  }
}

class LearnedStepOnDisk : public testing::TemporaryDirectory {};

TEST_F(LearnedStepOnDisk, AFileThatCannotBeReadIsNamed) {
  const std::string path = (directory_ / "step.json").string();
  const auto refusal = [&] {
    try {
      read_learned_step(path);
      return std::string("accepted");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal(), "'" + path + "' cannot be read");
  write("step.json", "[]");
  EXPECT_EQ(refusal(), "'" + path + "': learned step: the file is not an object");
}

// The error when the step is read after `change`; empty if there is none.
template <class Change>
std::string refusal_of(const Change& change) {
  auto json = Json::parse(to_text(small_step()));
  change(json);
  try {
    parse_learned_step(json.dump());
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(LearnedStepFile, SaysWhatIsWrongWhere) {
  EXPECT_EQ(refusal_of([](Json&) {}), "");
  EXPECT_EQ(refusal_of([](Json& json) { json["schema"] = 2; }),
            "learned step: the file: 'schema' is another one than 1");
  EXPECT_EQ(refusal_of([](Json& json) { json["type"] = "schedule"; }),
            "learned step: the file: 'type' is not 'learned step'");
  EXPECT_EQ(refusal_of([](Json& json) { json.erase("device"); }), "learned step: the file lacks 'device'");
  EXPECT_EQ(refusal_of([](Json& json) { json["program"] = ""; }),
            "learned step: the file: 'program' is empty");
  EXPECT_EQ(refusal_of([](Json& json) { json["batch"] = 0; }),
            "learned step: the file: 'batch' is no number of samples");
  EXPECT_EQ(refusal_of([](Json& json) { json["note"] = "x"; }),
            "learned step: the file has the unknown key 'note'");
  EXPECT_EQ(refusal_of([](Json& json) { json["events"] = Json::array(); }),
            "learned step: the file: 'events' is empty: the step has saved nothing");
  EXPECT_EQ(refusal_of([](Json& json) { json["seconds"] = 0.07 - 1e-9; }),
            "learned step: the file: 'seconds' is earlier than the event before");
  EXPECT_EQ(refusal_of([](Json& json) { json["peak_bytes"] = 1; }),
            "learned step: event 0: more bytes are in use than the step's 'peak_bytes', 1");
}

TEST(LearnedStepFile, SaysWhatIsWrongWithAnEvent) {
  const auto of_event = [](std::size_t event, const char* key, const Json& value) {
    return refusal_of([&](Json& json) { json["events"][event][key] = value; });
  };
  EXPECT_EQ(of_event(0, "read", 0), "learned step: event 0 must be either a 'save' or a 'read'");
  EXPECT_EQ(of_event(0, "save", 0), "learned step: event 0: 'save' must be more than 0 bytes");
  EXPECT_EQ(of_event(0, "save", -1), "learned step: event 0: 'save' is not a count");
  EXPECT_EQ(of_event(0, "save", std::uint64_t{1} << 61U),
            "learned step: event 0: 'save' is more than any device has");
  EXPECT_EQ(of_event(1, "held_until", 1), "learned step: event 1: 'held_until' is not a later event");
  EXPECT_EQ(of_event(1, "held_until", 7), "");
  EXPECT_EQ(of_event(1, "held_until", 8), "learned step: event 1: 'held_until' is out of range");
  EXPECT_EQ(of_event(3, "read", 3), "learned step: event 3: 'read' is out of range");
  EXPECT_EQ(of_event(3, "held_until", 7), "learned step: event 3 has the unknown key 'held_until'");
  EXPECT_EQ(of_event(3, "seconds", 0.029),
            "learned step: event 3: 'seconds' is earlier than the event before");
  EXPECT_EQ(of_event(3, "seconds", 1e7), "learned step: event 3: 'seconds' is longer than any step takes");
  EXPECT_EQ(
      of_event(2, "in_use_bytes", 1),
      "learned step: event 2: 'in_use_bytes' 1 is less than the 29360128 bytes of the saved tensors that are "
      "read at it or later");
}

// A tensor that is never read counts as bytes in use while it exists, but the file does not record for how
// long.
TEST(LearnedStepFile, ATensorThatIsNeverReadNeedNotBeInUse) {
  LearnedStep step = small_step();
  std::erase_if(step.events, [](const StepEvent& event) {
    return event.kind == StepEvent::Kind::kRead && event.tensor == 2;
  });
  step.events[2].in_use_bytes = 24 * testing::kStepMiB;
  EXPECT_EQ(parse_learned_step(to_text(step)), step);
  EXPECT_EQ(to_tape(step, 8)->find_value("tensor2"), kNone);
}

// --- the tape ----------------------------------------------------------------------------------------------

std::vector<OpId> readers_of(const Tape& tape, const std::string& value) {
  const auto readers = tape.readers(tape.find_value(value));
  return {readers.begin(), readers.end()};
}

TEST(LearnedStepTape, HasAnOpForEachStretch) {
  const auto tape = to_tape(small_step(), 8);
  EXPECT_EQ(tape->model(), "small.py");
  std::vector<std::string> names;
  std::vector<double> milliseconds;
  for (const Op& op : tape->ops()) {
    names.push_back(op.name);
    milliseconds.push_back(std::round(op.cost.seconds * 1e3));
  }
  EXPECT_THAT(names, ElementsAre("start", "tensor0.saved", "tensor1.saved", "tensor2.saved", "tensor2.read",
                                 "tensor1.read", "tensor0.read", "tensor0.read2"));
  EXPECT_THAT(milliseconds, ::testing::Each(10));
  EXPECT_EQ(tape->forward_ops(), 4U) << "up to the first read";
}

TEST(LearnedStepTape, ATensorIsReadWhileItIsHeldAndAfterItsReads) {
  const auto tape = to_tape(small_step(), 8);
  EXPECT_EQ(tape->producer(tape->find_value("tensor0")), 0U);
  EXPECT_THAT(readers_of(*tape, "tensor0"), ElementsAre(1, 2, 6, 7)) << "held up to event 2";
  EXPECT_THAT(readers_of(*tape, "tensor1"), ElementsAre(2, 5));
  EXPECT_THAT(readers_of(*tape, "tensor2"), ElementsAre(3, 4));
}

TEST(LearnedStepTape, CountsTheRestAsResidentOrAsWorkspace) {
  const auto tape = to_tape(small_step(), 8);
  const ValueId resident = tape->find_value("resident");
  ASSERT_NE(resident, kNone);
  EXPECT_EQ(tape->value(resident).bytes, 10 * testing::kStepMiB) << "the resident bytes of the first event";
  EXPECT_EQ(tape->readers(resident).size(), tape->ops().size() - 1);
  std::vector<std::uint64_t> workspaces;
  for (const Op& op : tape->ops()) {
    workspaces.push_back(op.algorithms.front().workspace_bytes / testing::kStepMiB);
  }
  // The stretch with the most bytes in use, 46 MiB before event 4, gets the step's peak of 48 MiB.
  EXPECT_THAT(workspaces, ElementsAre(0, 2, 2, 4, 10, 10, 10, 6));
}

TEST(LearnedStepTape, HasTheRecordedPeakToTheByte) {
  EXPECT_EQ(peak_of(*to_tape(small_step(), 8)), small_step().peak_bytes);
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const LearnedStep step = RandomStep(seed).build();
    EXPECT_EQ(peak_of(*to_tape(step, batch_of(step))), step.peak_bytes) << "seed " << seed;
  }
}

TEST(LearnedStepTape, NothingMayRunAgain) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const LearnedStep step = RandomStep(seed).build();
    const auto tape = to_tape(step, batch_of(step));
    for (OpId op = 0; op < tape->ops().size(); ++op) {
      EXPECT_FALSE(may_run_again(*tape, op)) << "seed " << seed << ", op " << tape->op(op).name;
    }
  }
}

TEST(LearnedStepTape, StaticPoliciesAreValid) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const LearnedStep step = RandomStep(seed).build();
    const auto tape = to_tape(step, batch_of(step));
    for (const Policy policy : {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll}) {
      const Schedule schedule = make_schedule(*tape, make_plan(*tape, {.policy = policy}));
      EXPECT_THAT(check_schedule(*tape, schedule), IsEmpty()) << "seed " << seed << ", " << to_string(policy);
    }
  }
}

TEST(LearnedStepTape, PolicyAllMovesEachTensorThatIsRead) {
  const auto tape = to_tape(small_step(), 8);
  const Schedule schedule = make_schedule(*tape, make_plan(*tape, {.policy = Policy::kOffloadAll}));
  EXPECT_EQ(offload_bytes(*tape, schedule), 28 * testing::kStepMiB);
}

// For another batch, everything except resident bytes scales in proportion, rounded up.
TEST(LearnedStepTape, GrowsInProportionToTheBatch) {
  const auto own = to_tape(small_step(), 8);
  const auto grown = to_tape(small_step(), 12);
  const auto shrunk = to_tape(small_step(), 1);
  for (ValueId value = 0; value < own->values().size(); ++value) {
    const bool resident = own->value(value).name == "resident";
    EXPECT_EQ(grown->value(value).bytes * 2, own->value(value).bytes * (resident ? 2 : 3));
    EXPECT_EQ(shrunk->value(value).bytes * (resident ? 1 : 8), own->value(value).bytes);
  }
  for (OpId op = 0; op < own->ops().size(); ++op) {
    EXPECT_DOUBLE_EQ(grown->op(op).cost.seconds, own->op(op).cost.seconds * 1.5);
    EXPECT_EQ(grown->op(op).algorithms[0].workspace_bytes * 2, own->op(op).algorithms[0].workspace_bytes * 3);
  }
  LearnedStep odd = small_step();
  odd.batch = 3;
  EXPECT_EQ(to_tape(odd, 1)->value(own->find_value("tensor0")).bytes, 16 * testing::kStepMiB / 3 + 1);
}

TEST(LearnedStepTape, RefusesBatchesThatCannotBe) {
  EXPECT_THROW(to_tape(small_step(), 0), InvalidArgument);
  EXPECT_THROW(to_tape(small_step(), std::int64_t{1} << 60U), InvalidArgument) << "overflow";
  LearnedStep unknown = small_step();
  unknown.batch.reset();
  EXPECT_EQ(batch_of(unknown), 1);
  EXPECT_EQ(peak_of(*to_tape(unknown, 1)), unknown.peak_bytes);
  EXPECT_THROW(to_tape(unknown, 2), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::learned_step_test
