#include "vdnn/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/exec/executor_rig.h"
#include "tests/exec/hash_program.h"
#include "tests/exec/networks.h"
#include "tests/exec/plan_cases.h"

namespace vdnn::testing::predictor_test {
namespace {

constexpr std::uint64_t kNetworks = 40;

struct PredictorCase {
  PlanCase plan;
  bool page_aligned_blocks = false;
};

class PredictorTest : public ::testing::TestWithParam<PredictorCase> {
 protected:
  PredictionOptions options() const {
    return {.profile = sim_profile("cpu"), .page_aligned_blocks = GetParam().page_aligned_blocks};
  }
  CpuDeviceOptions cpu(std::uint64_t budget) const {
    return {.budget_bytes = budget, .page_aligned_blocks = GetParam().page_aligned_blocks};
  }
};

std::vector<PredictorCase> all_cases() {
  std::vector<PredictorCase> cases;
  for (const PlanCase& plan : plan_cases()) {
    cases.push_back({.plan = plan});
    cases.push_back({.plan = plan, .page_aligned_blocks = true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, PredictorTest, ::testing::ValuesIn(all_cases()), [](const auto& test) {
  return test.param.plan.name + (test.param.page_aligned_blocks ? "_page_aligned" : "");
});

// The predictions equal the cpu driver's counters, with exactly the predicted budget and with twice as much.
TEST_P(PredictorTest, PredictsThePeakThatTheCpuDriverCounts) {
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    const TapePtr tape = training_tape(random_network(seed), {.pooling_reads_x_and_y = seed % 2 == 1});
    const Schedule schedule = schedule_of(*tape, GetParam().plan);
    const Prediction prediction = predict(*tape, schedule, options());
    for (const std::uint64_t budget : {prediction.peak_bytes, 2 * prediction.peak_bytes}) {
      const auto device = make_cpu_device(cpu(budget));
      HashProgram program;
      ExecutorRig rig(*device, *tape, {.program = &program});
      Executor executor(rig.parts(*tape, schedule));
      StepLoop(rig, executor).run(4);
      const std::string reproducer = "network seed " + std::to_string(seed);
      EXPECT_EQ(device->counters().peak_committed_bytes, prediction.peak_bytes) << reproducer;
      EXPECT_EQ(device->counters().peak_pinned_bytes, prediction.host_bytes) << reproducer;
      EXPECT_EQ(executor.memory().average_bytes, prediction.average_bytes) << reproducer;
    }
  }
}

TEST_P(PredictorTest, ForecastsWhatItPredicts) {
  const std::unique_ptr<Forecaster> forecaster = make_forecaster(options());
  const TapePtr tape = training_tape(random_network(1));
  const Schedule schedule = schedule_of(*tape, GetParam().plan);
  const Prediction prediction = predict(*tape, schedule, options());
  const Forecast forecast = forecaster->forecast(*tape, schedule);
  EXPECT_EQ(forecast.peak_bytes, prediction.peak_bytes);
  EXPECT_EQ(forecast.host_bytes, prediction.host_bytes);
  EXPECT_EQ(forecast.step_seconds, prediction.step_seconds);
  EXPECT_TRUE(forecast.fits({.device_bytes = forecast.peak_bytes, .host_bytes = forecast.host_bytes}));
  EXPECT_FALSE(forecast.fits({.device_bytes = forecast.peak_bytes - 1, .host_bytes = forecast.host_bytes}));
  EXPECT_FALSE(forecast.fits({.device_bytes = forecast.peak_bytes, .host_bytes = forecast.host_bytes - 1}));
}

TEST_P(PredictorTest, PredictsThePeakOfEvaluation) {
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    const TapePtr training = training_tape(random_network(seed));
    const TapePtr evaluation = lower_to_evaluation_tape(random_network(seed), fakes::FakeCatalog());
    const Schedule schedule = schedule_of(*evaluation, GetParam().plan);
    const std::uint64_t predicted = predict_evaluation_peak(*training, *evaluation, schedule, options());
    const auto device = make_cpu_device(cpu(predicted));
    ExecutorRig rig(*device, *training);
    Executor executor(rig.parts(*evaluation, schedule));
    StepLoop(rig, executor).run(3);
    EXPECT_EQ(device->counters().peak_committed_bytes, predicted) << "network seed " << seed;
  }
}

TEST_P(PredictorTest, IsDeterministic) {
  const TapePtr tape = training_tape(random_network(3));
  const Schedule schedule = schedule_of(*tape, GetParam().plan);
  PredictionOptions traced = options();
  traced.trace = true;
  const Prediction first = predict(*tape, schedule, traced);
  const Prediction second = predict(*tape, schedule, traced);
  EXPECT_EQ(first.peak_bytes, second.peak_bytes);
  EXPECT_EQ(first.average_bytes, second.average_bytes);
  EXPECT_EQ(first.host_bytes, second.host_bytes);
  EXPECT_EQ(first.step_seconds, second.step_seconds);
  EXPECT_EQ(first.stall_seconds, second.stall_seconds);
  EXPECT_EQ(first.stream_names, second.stream_names);
  ASSERT_EQ(first.trace.size(), second.trace.size());
  EXPECT_FALSE(first.trace.empty());
  for (std::size_t event = 0; event < first.trace.size(); ++event) {
    EXPECT_EQ(first.trace[event].name, second.trace[event].name);
    EXPECT_EQ(first.trace[event].begin_seconds, second.trace[event].begin_seconds);
    EXPECT_EQ(first.trace[event].end_seconds, second.trace[event].end_seconds);
  }
}

TEST_P(PredictorTest, TakesNoTraceUnlessAsked) {
  const TapePtr tape = training_tape(random_network(3));
  const Prediction prediction = predict(*tape, schedule_of(*tape, GetParam().plan), options());
  EXPECT_TRUE(prediction.trace.empty());
  EXPECT_FALSE(prediction.step.has_value());
}

// Each instruction begins after everything that it waits for and after its stream's earlier work, and has its
// op's duration.
TEST_P(PredictorTest, SaysWhenEachInstructionRunsAndWhereBuffersLie) {
  constexpr double kRounding = 1e-9;
  for (const bool graph : {false, true}) {
    const TapePtr tape = training_tape(random_network(3));
    const Schedule schedule = schedule_of(*tape, GetParam().plan);
    PredictionOptions traced = options();
    traced.trace = true;
    traced.graph = graph;
    const Prediction prediction = predict(*tape, schedule, traced);
    ASSERT_TRUE(prediction.step.has_value());
    const std::vector<InstructionTime>& times = prediction.step->times;
    ASSERT_EQ(times.size(), schedule.instructions.size());
    std::array<double, kStreamRoles> done{};
    for (std::uint32_t index = 0; index < times.size(); ++index) {
      const Instruction& instruction = schedule.instructions[index];
      if (instruction.kind == InstructionKind::kAllocate || instruction.kind == InstructionKind::kRelease) {
        EXPECT_EQ(times[index].begin_seconds, times[index].end_seconds);
        continue;
      }
      const std::string what = describe(*tape, instruction);
      for (const Wait& wait : instruction.waits) {
        if (wait.steps_ago == 0 &&
            schedule.instructions[wait.instruction].kind != InstructionKind::kAllocate) {
          EXPECT_GE(times[index].begin_seconds, times[wait.instruction].end_seconds - kRounding) << what;
        }
      }
      double& before = done[static_cast<std::size_t>(instruction.stream)];
      EXPECT_GE(times[index].begin_seconds, before - kRounding) << what;
      before = times[index].end_seconds;
      if (is_launch(instruction.kind)) {
        const Cost& cost = tape->op(instruction.op).cost_with(schedule.algorithms[instruction.op]);
        EXPECT_NEAR(before - times[index].begin_seconds, traced.profile.seconds(cost), kRounding) << what;
      }
      for (const BufferUse& use : uses(*tape, instruction)) {
        EXPECT_EQ(prediction.step->placements[use.buffer].bytes, schedule.buffers[use.buffer].bytes) << what;
      }
    }
    EXPECT_NEAR(*std::ranges::max_element(done), prediction.step->begin_seconds + prediction.step_seconds,
                kRounding);
  }
}

// A step takes at least as long as the busiest stream, and at most as long as all work in sequence.
TEST(PredictorTimes, LieBetweenTheBusiestStreamAndAllOfThem) {
  const TapePtr tape = training_tape(zoo_network("fashion-vgg", 16));
  for (const PlanCase& plan : plan_cases()) {
    const Prediction prediction =
        predict(*tape, schedule_of(*tape, plan), {.profile = sim_profile("titan-x"), .trace = true});
    std::vector<double> busy(prediction.stream_names.size());
    double all = 0;
    for (const TraceEvent& event : prediction.trace) {
      if (event.kind == TraceEvent::Kind::kWork) {
        busy[event.stream] += event.end_seconds - event.begin_seconds;
        all += event.end_seconds - event.begin_seconds;
      }
    }
    const double rounding = 1e-9 * all;
    for (const double one : busy) {
      EXPECT_GE(prediction.step_seconds, one - rounding) << plan.name;
    }
    EXPECT_LE(prediction.step_seconds, all + rounding) << plan.name;
    EXPECT_LE(prediction.stall_seconds, prediction.step_seconds) << plan.name;
  }
}

}  // namespace
}  // namespace vdnn::testing::predictor_test
