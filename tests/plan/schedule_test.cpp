#include "vdnn/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tests/extent.h"
#include "tests/plan/oracle.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> printed(const Tape& tape, const Schedule& schedule) {
  std::stringstream text;
  print(text, tape, schedule);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::size_t position(const Schedule& schedule, InstructionKind kind, ValueId value) {
  const auto found = std::ranges::find_if(
      schedule.instructions, [&](const Instruction& it) { return it.kind == kind && it.value == value; });
  return static_cast<std::size_t>(found - schedule.instructions.begin());
}

std::size_t launch_of(const Schedule& schedule, OpId op) {
  const auto found = std::ranges::find_if(schedule.instructions, [&](const Instruction& it) {
    return it.kind == InstructionKind::kLaunch && it.op == op;
  });
  return static_cast<std::size_t>(found - schedule.instructions.begin());
}

std::size_t gradient_buffers(const Schedule& schedule) {
  return static_cast<std::size_t>(std::ranges::count_if(
      schedule.buffers, [](const Buffer& buffer) { return buffer.name.starts_with("gradient maps"); }));
}

void expect_right(const Tape& tape, const Schedule& schedule, const std::string& name) {
  EXPECT_THAT(check_schedule(tape, schedule), IsEmpty()) << name;
  EXPECT_EQ(Oracle(tape, schedule).objection(schedule, Exploration::kEverything), "") << name;
}

// --- waits ---------------------------------------------------------------------------------------

// Every wait is needed: without it, some permitted order computes something else.
TEST(Schedule, NoWaitIsRedundant) {
  const std::uint64_t stride = extent({.usual = 1, .under_sanitizers = 7, .in_long_run = 1});
  std::uint64_t waits_seen = 0;
  for (const Subject& subject : all_subjects()) {
    const Oracle oracle(*subject.tape, subject.schedule);
    for (std::uint32_t index = 0; index < subject.schedule.instructions.size(); ++index) {
      for (std::size_t wait = 0; wait < subject.schedule.instructions[index].waits.size(); ++wait) {
        if (waits_seen++ % stride != 0) {
          continue;
        }
        Schedule without = subject.schedule;
        auto& waits = without.instructions[index].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
        EXPECT_NE(oracle.objection(without, Exploration::kConflicts, 0, index), "")
            << subject.name << ": wait " << wait << " of instruction " << index << " ("
            << describe(*subject.tape, subject.schedule.instructions[index]) << ")";
      }
    }
  }
}

TEST(Schedule, TransfersWaitForNothingButTheirValue) {
  const TapePtr tape = model_tape("fashion-vgg");
  const Plan plan = plan_of(*tape, Policy::kOffloadAll);
  const Schedule schedule = make_schedule(*tape, plan);
  for (const Transfer& transfer : plan.transfers) {
    const std::string name = tape->value(transfer.value).name;
    const std::size_t offload = position(schedule, InstructionKind::kOffload, transfer.value);
    const std::size_t prefetch = position(schedule, InstructionKind::kPrefetch, transfer.value);
    const OpId producer = tape->producer(transfer.value);
    const std::size_t origin = producer == kNone ? position(schedule, InstructionKind::kLoad, transfer.value)
                                                 : launch_of(schedule, producer);
    EXPECT_THAT(schedule.instructions[offload].waits,
                ElementsAre(Wait{static_cast<std::uint32_t>(origin), 0}))
        << name;
    // The value that leaves last is fetched first. The wait of its prefetch implies that the values offloaded
    // earlier have left, too.
    std::vector<Wait> expected;
    if (transfer.value == plan.transfers.back().value) {
      expected.push_back({static_cast<std::uint32_t>(offload), 0});
    }
    EXPECT_EQ(schedule.instructions[prefetch].waits, expected) << name;
  }
}

// --- order ---------------------------------------------------------------------------------------

// The offload starts beside the last forward reader, and the prefetch just before the op with which it is
// planned.
TEST(Schedule, TransfersStandBesideTheirOps) {
  const TapePtr tape = model_tape("fashion-vgg");
  const Plan plan = plan_of(*tape, Policy::kOffloadAll);
  const Schedule schedule = make_schedule(*tape, plan);
  const auto launches_between = [&](std::size_t from, std::size_t to) {
    return std::count_if(schedule.instructions.begin() + static_cast<std::ptrdiff_t>(from),
                         schedule.instructions.begin() + static_cast<std::ptrdiff_t>(to),
                         [](const Instruction& it) { return it.kind == InstructionKind::kLaunch; });
  };
  for (const Transfer& transfer : plan.transfers) {
    const std::size_t offload = position(schedule, InstructionKind::kOffload, transfer.value);
    const std::size_t prefetch = position(schedule, InstructionKind::kPrefetch, transfer.value);
    const std::size_t with = launch_of(schedule, transfer.offload_with);
    const std::size_t before = launch_of(schedule, transfer.prefetch_with);
    ASSERT_LT(offload, with);
    EXPECT_EQ(launches_between(offload, with), 0);
    ASSERT_LT(prefetch, before);
    EXPECT_EQ(launches_between(prefetch, before), 0);
    EXPECT_EQ(schedule.instructions[offload].stream, StreamRole::kOffload);
    EXPECT_EQ(schedule.instructions[prefetch].stream, StreamRole::kPrefetch);
  }
}

// Regression: y, which the loss needs now, was fetched after the images, which are needed later.
TEST(Schedule, ADemandFetchComesBeforeWhatIsFetchedAhead) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
  const std::size_t demanded = position(schedule, InstructionKind::kPrefetch, value_named(*tape, "y"));
  const std::size_t ahead = position(schedule, InstructionKind::kPrefetch, value_named(*tape, "images"));
  EXPECT_LT(demanded, ahead);
  EXPECT_LT(ahead, launch_of(schedule, op_named(*tape, "loss.backward")));
}

TEST(Schedule, OffloadsBesideTheProducerComeAfterIt) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId dx = draft.value("dx", ValueKind::kGradientMap, 8);
  const std::uint32_t layer = draft.layer("layer");
  draft.op("forward", layer, Phase::kForward, {x}, {y, metrics});
  draft.op("backward", layer, Phase::kBackward, {y}, {dx});
  const TapePtr tape = draft.finish();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
  EXPECT_LT(launch_of(schedule, 0), position(schedule, InstructionKind::kOffload, y));
  EXPECT_LT(position(schedule, InstructionKind::kOffload, y), launch_of(schedule, 1));
  expect_right(*tape, schedule, "by hand");
}

// A buffer is allocated for its first launch and released after its last one.
TEST(Schedule, BuffersLiveNoLongerThanTheyAreUsed) {
  for (const Subject& subject : all_subjects()) {
    if (subject.name.find("several lives") != std::string::npos) {
      continue;  // these plans have lives without a reader, which end at a randomly drawn op
    }
    struct Life {
      int allocated = 0;  // counted in launches
      int first = -1;
      int last = -1;
    };
    std::map<BufferId, Life> lives;
    int launches = 0;
    for (const Instruction& it : subject.schedule.instructions) {
      if (it.kind == InstructionKind::kAllocate) {
        lives[it.buffer].allocated = launches;
      } else if (it.kind == InstructionKind::kRelease) {
        const Life& life = lives[it.buffer];
        const std::string& name = subject.schedule.buffers[it.buffer].name;
        EXPECT_TRUE(life.last == launches || life.last == launches - 1) << subject.name << ": " << name;
        // Inputs are loaded at the start of the step, ahead of their first use.
        EXPECT_TRUE(life.first == life.allocated || life.allocated == 0) << subject.name << ": " << name;
      }
      for (const BufferUse& use : uses(*subject.tape, it)) {
        Life& life = lives[use.buffer];
        life.first = life.first < 0 ? launches : life.first;
        life.last = launches;
      }
      launches += it.kind == InstructionKind::kLaunch ? 1 : 0;
    }
  }
}

TEST(Schedule, OverwritingInPlaceIsUsed) {
  const TapePtr tape = model_tape("fashion-vgg");
  for (const Policy policy : all_policies()) {
    const Schedule schedule = schedule_of(*tape, policy);
    const Instruction& relu = schedule.instructions[launch_of(schedule, op_named(*tape, "relu1_1.forward"))];
    EXPECT_EQ(relu.operands[0], relu.operands[1]) << to_string(policy);
    // pool1 is the last reader of relu1_2.y in forward, but backward needs it.
    const Instruction& pool = schedule.instructions[launch_of(schedule, op_named(*tape, "pool1.forward"))];
    EXPECT_NE(pool.operands[0], pool.operands[1]) << to_string(policy);
  }
}

// --- baseline ------------------------------------------------------------------------------------

TEST(Schedule, BaselineAllocatesNothingInAStep) {
  const Schedule schedule = schedule_of(*model_tape("lenet"), Policy::kBaseline);
  EXPECT_TRUE(std::ranges::all_of(schedule.buffers, &Buffer::persistent));
  EXPECT_TRUE(std::ranges::none_of(schedule.instructions, [](const Instruction& it) {
    return it.kind == InstructionKind::kAllocate || it.kind == InstructionKind::kRelease;
  }));
}

TEST(Schedule, BaselineHasTwoGradientBuffersAndMoreWhereAForkNeedsThem) {
  EXPECT_EQ(gradient_buffers(schedule_of(*model_tape("lenet"), Policy::kBaseline)), 2);
  EXPECT_EQ(gradient_buffers(schedule_of(*model_tape("fashion-vgg"), Policy::kBaseline)), 2);
  // The tiny tape's only gradient map overwrites a saved tensor.
  EXPECT_EQ(gradient_buffers(schedule_of(*tiny_tape(), Policy::kBaseline)), 2);
  // While right computes its part of the gradient of relu1.y, four buffers are in use: skip's part, the
  // output gradients of left and right, and right's part.
  EXPECT_EQ(gradient_buffers(schedule_of(*forked_tape(), Policy::kBaseline)), 4);
}

// Regression: both gradient maps of an op got the same first free buffer.
TEST(Schedule, BaselineSeparatesTwoGradientMapsOfOneOp) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId w = draft.value("w", ValueKind::kParameter, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId da = draft.value("da", ValueKind::kGradientMap, 8);
  const ValueId db = draft.value("db", ValueKind::kGradientMap, 8);
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 8);
  const std::uint32_t layer = draft.layer("layer");
  draft.op("forward", layer, Phase::kForward, {x, w}, {metrics});
  draft.op("split", layer, Phase::kBackward, {x}, {da, db});
  draft.op("filter", layer, Phase::kBackward, {da, db}, {dw});
  draft.op("update", layer, Phase::kUpdate, {w, dw}, {w});
  const TapePtr tape = draft.finish();
  for (const Policy policy : all_policies()) {
    expect_right(*tape, schedule_of(*tape, policy), to_string(policy));
  }
}

// --- other tapes ---------------------------------------------------------------------------------

TEST(Schedule, IsRightOnEvaluationAndOnTheTinyTape) {
  const TapePtr evaluation = lower_to_evaluation_tape(forked_network(), fakes::FakeCatalog());
  for (const TapePtr& tape : {evaluation, tiny_tape(), forked_tape()}) {
    for (const Subject& subject : subjects_of(tape->model(), tape)) {
      expect_right(*subject.tape, subject.schedule, subject.name);
    }
  }
}

// Regression: lowering asked for the producer of the metrics, which a tape may lack.
TEST(Schedule, IsRightOnATapeWithoutMetrics) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 8);
  draft.op("forward", draft.layer("layer"), Phase::kForward, {x}, {y});
  const TapePtr tape = draft.finish();
  for (const Policy policy : all_policies()) {
    expect_right(*tape, schedule_of(*tape, policy), to_string(policy));
  }
}

TEST(Schedule, RefusesAPlanOfAnotherTape) {
  EXPECT_THROW(make_schedule(*tiny_tape(), plan_of(*model_tape("lenet"), Policy::kOffloadNone)),
               InvalidArgument);
}

// --- for people ----------------------------------------------------------------------------------

TEST(Schedule, InstructionsRefuseQuestionsAboutAnotherKind) {
  const Instruction offload{.kind = InstructionKind::kOffload,
                            .value = 3,
                            .buffer = 1,
                            .host_buffer = 2,
                            .operands = {},
                            .waits = {}};
  EXPECT_EQ(offload.copy().value, 3U);
  EXPECT_EQ(offload.copy().from, 1U);
  EXPECT_EQ(offload.copy().to, 2U);
  EXPECT_THROW(offload.launched_op(), InvalidArgument);
  EXPECT_THROW(offload.workspace(), InvalidArgument);
  const Instruction launch{.kind = InstructionKind::kLaunch, .op = 5, .operands = {1, 2, kNone}, .waits = {}};
  EXPECT_EQ(launch.launched_op(), 5U);
  EXPECT_EQ(launch.workspace(), kNone);
  EXPECT_THROW(launch.copy(), InvalidArgument);
}

TEST(Schedule, Prints) {
  const TapePtr tape = tiny_tape();
  EXPECT_THAT(printed(*tape, schedule_of(*tape, Policy::kOffloadAll, AlgorithmPreference::kMemory)),
              ElementsAre("0: [load] allocate #1 'images' 64 bytes",                           //
                          "1: [load] load images #1 'images' 64 bytes",                        //
                          "2: [load] allocate #2 'targets' 8 bytes",                           //
                          "3: [load] load targets #2 'targets' 8 bytes",                       //
                          "4: [offload] allocate #3 'images (host)' 64 bytes",                 //
                          "5: [offload] offload images #1 'images' 64 bytes after 1",          //
                          "6: [compute] allocate #4 'y' 64 bytes",                             //
                          "7: [compute] launch conv.forward after 1",                          //
                          "8: [offload] release #1 'images' 64 bytes after 7 after 5",         //
                          "9: [offload] allocate #5 'y (host)' 64 bytes",                      //
                          "10: [offload] offload y #4 'y' 64 bytes after 7",                   //
                          "11: [compute] allocate #6 'metrics' 8 bytes",                       //
                          "12: [compute] allocate #7 'p' 64 bytes",                            //
                          "13: [compute] launch loss.forward after 3",                         //
                          "14: [offload] read_result metrics #6 'metrics' 8 bytes after 13",   //
                          "15: [offload] release #4 'y' 64 bytes after 13 after 10",           //
                          "16: [compute] release #2 'targets' 8 bytes after 13",               //
                          "17: [compute] release #6 'metrics' 8 bytes after 14",               //
                          "18: [prefetch] allocate #8 'y (prefetched)' 64 bytes",              //
                          "19: [prefetch] prefetch y #8 'y (prefetched)' 64 bytes after 10",   //
                          "20: [prefetch] release #5 'y (host)' 64 bytes after 19",            //
                          "21: [prefetch] allocate #9 'images (prefetched)' 64 bytes",         //
                          "22: [prefetch] prefetch images #9 'images (prefetched)' 64 bytes",  //
                          "23: [prefetch] release #3 'images (host)' 64 bytes after 22",       //
                          "24: [compute] launch loss.backward after 19",                       //
                          "25: [compute] release #8 'y (prefetched)' 64 bytes after 24",       //
                          "26: [compute] allocate #10 'dw' 16 bytes",                          //
                          "27: [compute] launch conv.backward after 22",                       //
                          "28: [compute] release #9 'images (prefetched)' 64 bytes after 27",  //
                          "29: [compute] release #7 'p' 64 bytes after 27",                    //
                          "30: [compute] launch w.update",                                     //
                          "31: [compute] release #10 'dw' 16 bytes after 30"));
}

}  // namespace
}  // namespace vdnn::testing
