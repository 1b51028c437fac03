#include "vdnn/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/exec/executor_rig.h"
#include "tests/exec/hash_program.h"
#include "tests/exec/networks.h"
#include "tests/exec/permitted_orders.h"
#include "tests/exec/plan_cases.h"
#include "tests/extent.h"
#include "tests/fakes/forwarding_device.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"
#include "vdnn/predictor.h"
#include "vdnn/sim_device.h"

namespace vdnn::testing {
namespace {

using ::testing::HasSubstr;

constexpr StepScalars kScalars{.learning_rate = 0.5F};

StepScalars scalars_of(std::uint64_t step, std::uint32_t micro_steps) {
  StepScalars scalars = kScalars;
  scalars.micro_step = static_cast<std::uint32_t>(step % micro_steps);
  scalars.micro_steps = micro_steps;
  return scalars;
}

Prediction predicted(const Tape& tape, const Schedule& schedule) {
  return predict(tape, schedule, {.profile = sim_profile("cpu")});
}

// A cpu device with exactly the predicted memory.
std::unique_ptr<Device> tight_device(const Prediction& prediction,
                                     std::optional<std::uint64_t> delay_seed = std::nullopt) {
  return make_cpu_device({.budget_bytes = prediction.peak_bytes, .delay_seed = delay_seed});
}

void write_batch(const ExecutorRig& rig, std::uint64_t step) {
  std::size_t input = 0;
  for (const AddressRange& range : rig.inputs.of_step(step)) {
    fill_batch(step, input++, {pointer_to<std::byte>(range.begin), range.bytes});
  }
}

void expect_metrics(const StepMetrics& metrics, const Interpreter& reference, const Tape& tape) {
  const Bytes& bytes = reference.value(tape.results()[0]);
  std::array<std::uint32_t, kMetricsFloats> expected{};
  ASSERT_EQ(bytes.size(), sizeof(expected));
  std::memcpy(expected.data(), bytes.data(), sizeof(expected));
  // Ranks have summed their losses, which are equal; the metrics contain the mean.
  const float loss =
      std::bit_cast<float>(expected[0]) / (tape.collective() ? float{HashCommunicator::kRanks} : 1.0F);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(metrics.losses[0].loss), std::bit_cast<std::uint32_t>(loss));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(metrics.losses[0].correct), expected[1]);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(metrics.losses[0].counted), expected[2]);
}

void expect_parameters(ExecutorRig& rig, HashProgram& program, const Interpreter& reference,
                       const Tape& tape) {
  const auto parameters = rig.parameters.download(rig.pinned, rig.streams[StreamRole::kCompute], program);
  ASSERT_EQ(parameters.size(), tape.parameters().size());
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto bytes = std::as_bytes(std::span(parameters[index]));
    const ValueId value = tape.parameters()[index].value;
    EXPECT_TRUE(std::ranges::equal(bytes, reference.value(value))) << tape.value(value).name;
  }
}

// If `collective`, compares the runs of the ops that ranks do together; otherwise those of all other ops.
void expect_runs(const std::vector<OpRun>& runs, const Interpreter& reference, const Tape& tape,
                 bool collective) {
  std::vector<OpRun> expected;
  std::ranges::copy_if(reference.runs(), std::back_inserter(expected),
                       [&](const OpRun& run) { return tape.op(run.op).collective() == collective; });
  ASSERT_EQ(runs.size(), expected.size());
  const auto [here, there] = std::ranges::mismatch(runs, expected);
  EXPECT_EQ(here, runs.end()) << "the first op that read other bytes: " << tape.op(there->op).name
                              << ", when it ran after "
                              << std::ranges::count(expected.begin(), there, there->op, &OpRun::op)
                              << " times";
}

// Like a training loop, reads metrics one step late, and rewrites a batch's memory as soon as it has been
// copied.
void train_and_compare(Device& device, const Tape& tape, const Schedule& schedule, std::uint64_t steps,
                       std::uint32_t micro_steps = 1) {
  HashProgram program;
  ExecutorRig rig(device, tape, {.program = &program});
  Interpreter reference(tape);
  Executor executor(rig.parts(tape, schedule, &program));
  std::vector<StepTicket> tickets;
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (step >= kStagedBatches) {
      device.synchronize(tickets[step - kStagedBatches].inputs_copied);
    }
    write_batch(rig, step);
    const StepScalars scalars = scalars_of(step, micro_steps);
    tickets.push_back(executor.submit(rig.inputs.of_step(step), scalars));
    if (step > 0) {
      expect_metrics(executor.wait(tickets[step - 1]), reference, tape);
    }
    reference.step(step, scalars);
  }
  expect_metrics(executor.wait(tickets.back()), reference, tape);
  device.synchronize(tickets.back().done);
  expect_runs(program.runs(), reference, tape, false);
  expect_runs(rig.communicator.runs(), reference, tape, true);
  expect_parameters(rig, program, reference, tape);
}

// The number of random networks; see use_network().
const std::uint64_t kNetworks = testing::extent({.usual = 12, .under_sanitizers = 4, .in_long_run = 12});

class ExecutorTest : public ::testing::TestWithParam<PlanCase> {
 protected:
  // Networks with forks, pooling and several convolutions. In half of them, backward pooling reads X and Y.
  void use_network(std::uint64_t seed, const TrainingOptions& training = kMomentum) {
    tape_ = training_tape(random_network(seed), {.pooling_reads_x_and_y = seed % 2 == 1}, training);
    schedule_ = schedule_of(*tape_, GetParam());
    require_valid(*tape_, schedule_);
    prediction_ = predicted(*tape_, schedule_);
  }
  ExecutorTest() { use_network(kNetwork); }

  // Without transfers, tests of transfers would test nothing.
  void SetUp() override {
    const auto transfers = std::ranges::count(schedule_.instructions, InstructionKind::kPrefetch,
                                              [](const Instruction& one) { return one.kind; });
    ASSERT_EQ(transfers > 1, GetParam().offloads());
    ASSERT_EQ(recomputed_ops(schedule_) > 1, GetParam().recomputes());
    ASSERT_EQ(schedule_.arena_bytes > 0, GetParam().placed);
  }

  static constexpr std::uint64_t kNetwork = 3;
  TapePtr tape_;
  Schedule schedule_;
  Prediction prediction_;
};

INSTANTIATE_TEST_SUITE_P(Policies, ExecutorTest, ::testing::ValuesIn(plan_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ExecutorTest, EveryOpReadsWhatAnInterpreterWithoutSharedMemoryReads) {
  for (std::uint64_t network = 0; network < kNetworks; ++network) {
    SCOPED_TRACE("network " + std::to_string(network));
    use_network(network);
    const auto device = tight_device(prediction_);
    train_and_compare(*device, *tape_, schedule_, 5);
    expect_nothing_held(*device);
  }
}

TEST_P(ExecutorTest, DelaysDoNotChangeWhatOpsRead) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE("delay seed " + std::to_string(seed));
    const auto device = tight_device(prediction_, seed);
    train_and_compare(*device, *tape_, schedule_, 4);
  }
}

// --- placement ---------------------------------------------------------------------------------------------

// Addresses of the buffers in device memory, relative to the first parameter, which always comes first. The
// device need not do any work, because placement must not depend on completed work.
std::vector<std::vector<std::uint64_t>> placements(Device& device, const Tape& tape,
                                                   const Schedule& schedule) {
  ExecutorRig rig(device, tape);
  const std::uint64_t origin = rig.parameters.parameter(0).range.begin;
  Executor executor(rig.parts(tape, schedule));
  StepLoop loop(rig, executor);
  std::vector<std::vector<std::uint64_t>> result;
  for (int step = 0; step < 4; ++step) {
    loop.step();
    result.emplace_back();
    for (BufferId buffer = 0; buffer < schedule.buffers.size(); ++buffer) {
      const AddressRange range = executor.placements()[buffer];
      if (schedule.buffers[buffer].space == Space::kDevice && range.bytes > 0) {
        EXPECT_EQ(range.bytes, schedule.buffers[buffer].bytes);
        result.back().push_back(range.begin - origin);
      }
    }
  }
  return result;
}

TEST_P(ExecutorTest, EveryStepHasTheSameAddressesOnSimAndOnCpu) {
  for (std::uint64_t network = 0; network < kNetworks; ++network) {
    SCOPED_TRACE("network " + std::to_string(network));
    use_network(network);
    const auto sim = make_sim_device({.profile = sim_profile("cpu")});
    const auto on_sim = placements(*sim, *tape_, schedule_);
    ASSERT_FALSE(on_sim.front().empty());
    for (const auto& step : on_sim) {
      EXPECT_EQ(step, on_sim.front());
    }
    const auto cpu = tight_device(prediction_, network);
    EXPECT_EQ(placements(*cpu, *tape_, schedule_), on_sim);
  }
}

// Page-locked memory, too, must keep its addresses, since a captured step contains them.
TEST_P(ExecutorTest, EveryStepHasTheSameAddressesOnTheHost) {
  for (std::uint64_t network = 0; network < kNetworks; ++network) {
    SCOPED_TRACE("network " + std::to_string(network));
    use_network(network);
    const auto device = tight_device(prediction_, network);
    ExecutorRig rig(*device, *tape_);
    Executor executor(rig.parts(*tape_, schedule_));
    StepLoop loop(rig, executor);
    loop.run(1);
    const std::vector<AddressRange> first = executor.placements();
    for (int step = 1; step < 5; ++step) {
      loop.step();
      EXPECT_TRUE(executor.placements() == first) << "step " << step;
    }
  }
}

TEST_P(ExecutorTest, TakesNothingFromTheDeviceAfterTheFirstStep) {
  const auto device = tight_device(prediction_);
  ExecutorRig rig(*device, *tape_);
  Executor executor(rig.parts(*tape_, schedule_));
  StepLoop loop(rig, executor);
  loop.step();
  const DeviceCounters first = device->counters();
  loop.run(9);
  const DeviceCounters last = device->counters();
  EXPECT_EQ(last.commits, first.commits);
  EXPECT_EQ(last.decommits, first.decommits);
  EXPECT_EQ(last.pinned_allocations, first.pinned_allocations);
  EXPECT_EQ(last.pinned_frees, first.pinned_frees);
}

TEST_P(ExecutorTest, HoldsBetweenStepsOnlyWhatIsPersistent) {
  const auto device = tight_device(prediction_);
  ExecutorRig rig(*device, *tape_);
  const std::uint64_t parameters = rig.pool.statistics().in_use_bytes;
  std::uint64_t persistent = 0;
  {
    Executor executor(rig.parts(*tape_, schedule_));
    persistent = rig.pool.statistics().in_use_bytes;
    StepLoop loop(rig, executor);
    for (int step = 0; step < 3; ++step) {
      loop.step();
      EXPECT_EQ(rig.pool.statistics().in_use_bytes, persistent);
    }
    EXPECT_GE(executor.memory().peak_bytes, executor.memory().average_bytes);
    EXPECT_LE(executor.memory().peak_bytes, prediction_.peak_bytes);
  }
  if (GetParam().holds_memory()) {
    EXPECT_GT(persistent, parameters);
  } else {
    EXPECT_EQ(persistent, parameters);
  }
  EXPECT_EQ(rig.pool.statistics().in_use_bytes, parameters);
}

// --- failures ----------------------------------------------------------------------------------------------

// Regression: a stored schedule could hand misaligned memory to kernels.
TEST(ExecutorPlaces, RefusesAddressesThatTheDeviceDoesNotHandOut) {
  const TapePtr tape = training_tape(random_network(1));
  Schedule schedule =
      schedule_of(*tape, {.name = "all_placed", .policy = Policy::kOffloadAll, .placed = true});
  for (Buffer& buffer : schedule.buffers) {
    buffer.offset = buffer.offset ? std::optional(*buffer.offset + 4) : std::nullopt;
  }
  schedule.arena_bytes += 4;
  const auto device = make_sim_device({.profile = sim_profile("cpu")});
  ExecutorRig rig(*device, *tape);
  EXPECT_THROW(Executor(rig.parts(*tape, schedule)), InvalidArgument);
}

TEST_P(ExecutorTest, RefusesOtherInputsAndIsNoWorseForIt) {
  const auto device = tight_device(prediction_);
  ExecutorRig rig(*device, *tape_);
  Executor executor(rig.parts(*tape_, schedule_));
  const auto inputs = rig.inputs.of_step(0);
  EXPECT_THROW(executor.submit(inputs.first(1), kScalars), InvalidArgument);
  EXPECT_THROW(executor.submit({}, kScalars), InvalidArgument);
  const std::array exchanged{inputs[1], inputs[0]};
  EXPECT_THROW(executor.submit(exchanged, kScalars), InvalidArgument);
  EXPECT_NO_THROW(executor.wait(executor.submit(inputs, kScalars)));
}

TEST_P(ExecutorTest, RefusesAThirdStepWhoseMetricsWouldOverwriteUnreadOnes) {
  const auto device = tight_device(prediction_);
  ExecutorRig rig(*device, *tape_);
  Executor executor(rig.parts(*tape_, schedule_));
  const StepTicket first = executor.submit(rig.inputs.of_step(0), kScalars);
  const StepTicket second = executor.submit(rig.inputs.of_step(1), kScalars);
  EXPECT_THROW(executor.submit(rig.inputs.of_step(2), kScalars), InvalidArgument);
  EXPECT_THROW(executor.wait(second), InvalidArgument) << "the first step must be waited for first";
  executor.wait(first);
  EXPECT_THROW(executor.wait(first), InvalidArgument) << "metrics are read once per step";
  const StepTicket third = executor.submit(rig.inputs.of_step(2), kScalars);
  executor.wait(second);
  executor.wait(third);
}

// Runs steps until one throws, and returns the shortage that it throws.
std::optional<MemoryShortage> shortage_of_run(Device& device, const Tape& tape, const Schedule& schedule) {
  try {
    ExecutorRig rig(device, tape);
    Executor executor(rig.parts(tape, schedule));
    StepLoop(rig, executor).run(3);
  } catch (const OutOfMemory& error) {
    return error.shortage();
  }
  return std::nullopt;
}

TEST_P(ExecutorTest, OneGranuleLessThanPredictedIsOutOfMemoryAndLeaksNothing) {
  for (std::uint64_t network = 0; network < kNetworks; ++network) {
    SCOPED_TRACE("network " + std::to_string(network));
    use_network(network);
    const std::uint64_t granule = sim_profile("cpu").granule_bytes;
    ASSERT_GE(prediction_.peak_bytes, 2 * granule);
    const std::uint64_t budget = prediction_.peak_bytes - granule;
    const auto device = make_cpu_device({.budget_bytes = budget});
    const auto shortage = shortage_of_run(*device, *tape_, schedule_);
    ASSERT_TRUE(shortage);
    EXPECT_EQ(shortage->budget, budget);
    EXPECT_GT(shortage->asked, shortage->would_have_fitted);
    expect_nothing_held(*device);
    EXPECT_LE(device->counters().peak_committed_bytes, budget);
  }
}

// The most page-locked bytes that the instructions allocate at a time.
std::uint64_t most_host_bytes(const Schedule& schedule) {
  std::uint64_t bytes = 0;
  std::uint64_t most = 0;
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.buffer == kNone || schedule.buffers[instruction.buffer].space != Space::kHost) {
      continue;
    }
    if (instruction.kind == InstructionKind::kAllocate) {
      bytes += schedule.buffers[instruction.buffer].bytes;
    } else if (instruction.kind == InstructionKind::kRelease) {
      bytes -= schedule.buffers[instruction.buffer].bytes;
    }
    most = std::max(most, bytes);
  }
  return most;
}

// If values have several lives, a later copy may reuse the memory of an earlier copy, and a pool short of
// memory evicts other blocks first. So a run may need less memory than one without a budget uses, but never
// less than the most that its buffers occupy at one time.
TEST_P(ExecutorTest, OneByteOfPageLockedMemoryLessThanItTakesIsOutOfMemory) {
  const auto ample = tight_device(prediction_);
  ASSERT_FALSE(shortage_of_run(*ample, *tape_, schedule_));
  const std::uint64_t taken =
      GetParam().lives ? most_host_bytes(schedule_) : ample->counters().peak_pinned_bytes;
  const std::uint64_t budget = taken - 1;
  const auto device = make_cpu_device({.budget_bytes = prediction_.peak_bytes, .host_budget_bytes = budget});
  const auto shortage = shortage_of_run(*device, *tape_, schedule_);
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->budget, budget);
  expect_nothing_held(*device);
}

TEST_P(ExecutorTest, AFreshExecutorWithEnoughMemoryWorksAfterOneWithout) {
  const auto device = make_cpu_device({.budget_bytes = 2 * prediction_.peak_bytes});
  {
    const std::uint64_t too_little = prediction_.peak_bytes - sim_profile("cpu").granule_bytes;
    ExecutorRig rig(*device, *tape_, {.pool_budget = too_little});
    if (GetParam().holds_memory()) {
      EXPECT_THROW(Executor(rig.parts(*tape_, schedule_)), OutOfMemory) << "it allocates everything at once";
    } else {
      Executor executor(rig.parts(*tape_, schedule_));
      EXPECT_THROW(executor.submit(rig.inputs.of_step(0), kScalars), OutOfMemory);
      EXPECT_THROW(executor.submit(rig.inputs.of_step(0), kScalars), DeviceError) << "a step has failed";
    }
  }
  expect_nothing_held(*device);
  train_and_compare(*device, *tape_, schedule_, 3);
}

// Throws in one op of one step.
class FailingProgram : public HashProgram {
 public:
  FailingProgram(OpId op, std::uint64_t step, std::function<void()> fail)
      : op_(op), steps_left_(step), fail_(std::move(fail)) {}

  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void* native_stream) override {
    if (op == op_ && steps_left_-- == 0) {
      fail_();
    }
    HashProgram::run(op, operands, scalars, native_stream);
  }

 private:
  const OpId op_;
  std::uint64_t steps_left_;
  const std::function<void()> fail_;
};

// The failure of a step appears in its own metrics, or at the latest in those of the next step.
std::exception_ptr failure_of_run(ExecutorRig& rig, const ExecutorParts& parts, std::uint64_t failing_step) {
  Executor executor(parts);
  try {
    for (std::uint64_t step = 0; step <= failing_step + 1; ++step) {
      executor.wait(executor.submit(rig.inputs.of_step(step), kScalars));
    }
  } catch (...) {
    EXPECT_ANY_THROW(executor.submit(rig.inputs.of_step(0), kScalars)) << "a failure ends the executor";
    return std::current_exception();
  }
  return nullptr;
}

TEST_P(ExecutorTest, AFailureInAnyOpSurfacesAsThrownAndLeaksNothing) {
  const std::uint64_t stride = testing::extent({.usual = 1, .under_sanitizers = 5, .in_long_run = 1});
  for (OpId op = 0; op < tape_->ops().size(); op += static_cast<OpId>(stride)) {
    SCOPED_TRACE("op " + tape_->op(op).name);
    const std::uint64_t failing_step = op % 3;
    const auto device = tight_device(prediction_);
    {
      ExecutorRig rig(*device, *tape_);
      const std::uint64_t parameters = rig.pool.statistics().in_use_bytes;
      const std::uint64_t staged = rig.pinned.statistics().in_use_bytes;
      FailingProgram program(op, failing_step, [] { throw DeviceError("as ordered"); });
      const auto failure = failure_of_run(rig, rig.parts(*tape_, schedule_, &program), failing_step);
      EXPECT_EQ(rig.pool.statistics().in_use_bytes, parameters);
      EXPECT_EQ(rig.pinned.statistics().in_use_bytes, staged);
      ASSERT_TRUE(failure);
      try {
        std::rethrow_exception(failure);
      } catch (const DeviceError& error) {
        EXPECT_STREQ(error.what(), "as ordered");
      }
    }
    expect_nothing_held(*device);
  }
}

// A program may throw exceptions of foreign types.
TEST_P(ExecutorTest, AForeignExceptionSurfacesToo) {
  const auto device = tight_device(prediction_);
  {
    ExecutorRig rig(*device, *tape_);
    FailingProgram program(1, 1, [] { throw std::bad_alloc(); });
    const auto failure = failure_of_run(rig, rig.parts(*tape_, schedule_, &program), 1);
    ASSERT_TRUE(failure);
    EXPECT_THROW(std::rethrow_exception(failure), std::bad_alloc);
  }
  expect_nothing_held(*device);
}

// --- life --------------------------------------------------------------------------------------------------

TEST_P(ExecutorTest, ItsDestructorWaitsForStepsInFlight) {
  const auto device = tight_device(prediction_, 1);
  HashProgram program;
  ExecutorRig rig(*device, *tape_, {.program = &program});
  Interpreter reference(*tape_);
  {
    Executor executor(rig.parts(*tape_, schedule_, &program));
    for (std::uint64_t step = 0; step < 2; ++step) {
      write_batch(rig, step);
      executor.submit(rig.inputs.of_step(step), kScalars);
      reference.step(step, kScalars);
    }
  }
  EXPECT_EQ(program.runs(), reference.runs());
  expect_parameters(rig, program, reference, *tape_);
}

// Evaluates between training steps, with an executor of its own on the same parameters.
class SharedParametersTest : public ExecutorTest {
 protected:
  SharedParametersTest()
      : evaluation_tape_(lower_to_evaluation_tape(random_network(kNetwork),
                                                  fakes::FakeCatalog({.pooling_reads_x_and_y = true}))),
        evaluation_schedule_(schedule_of(*evaluation_tape_, Policy::kOffloadNone)) {
    require_valid(*evaluation_tape_, evaluation_schedule_);
  }

  const TapePtr evaluation_tape_;
  const Schedule evaluation_schedule_;
};

INSTANTIATE_TEST_SUITE_P(Policies, SharedParametersTest, ::testing::ValuesIn(plan_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(SharedParametersTest, EvaluationReadsWhatTrainingHasWritten) {
  const auto device = make_cpu_device({});
  HashProgram training_program;
  ExecutorRig rig(*device, *tape_, {.program = &training_program});
  HashProgram evaluation_program;
  Interpreter training_reference(*tape_);
  Interpreter evaluation_reference(*evaluation_tape_);
  Executor training(rig.parts(*tape_, schedule_, &training_program));
  Executor evaluation(rig.parts(*evaluation_tape_, evaluation_schedule_, &evaluation_program));
  for (std::uint64_t step = 0; step < 3; ++step) {
    write_batch(rig, step);
    const StepTicket trained = training.submit(rig.inputs.of_step(step), kScalars);
    const StepTicket evaluated = evaluation.submit(rig.inputs.of_step(step), kScalars);
    training_reference.step(step, kScalars);
    evaluation_reference.copy_parameters(training_reference);
    evaluation_reference.step(step, kScalars);
    expect_metrics(training.wait(trained), training_reference, *tape_);
    expect_metrics(evaluation.wait(evaluated), evaluation_reference, *evaluation_tape_);
  }
  EXPECT_EQ(training_program.runs(), training_reference.runs());
  EXPECT_EQ(evaluation_program.runs(), evaluation_reference.runs());
  expect_parameters(rig, training_program, training_reference, *tape_);
}

TEST_P(SharedParametersTest, NoOrderRacesOrReadsAStaleVersion) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto device = make_sim_device(
        {.profile = sim_profile("cpu"), .check_races = true, .check_versions = true, .order_seed = seed});
    {
      ExecutorRig rig(*device, *tape_);
      Executor training(rig.parts(*tape_, schedule_));
      Executor evaluation(rig.parts(*evaluation_tape_, evaluation_schedule_));
      StepLoop training_loop(rig, training);
      StepLoop evaluation_loop(rig, evaluation);
      for (int step = 0; step < 3; ++step) {
        training_loop.step();
        evaluation_loop.step();
      }
    }
    ASSERT_TRUE(device->findings().empty()) << "order seed " << seed << ": " << device->findings()[0].text;
  }
}

// --- several ranks, and micro-steps ------------------------------------------------------------------------

constexpr std::uint32_t kMicroSteps = 3;
constexpr std::uint64_t kTwoUpdates = std::uint64_t{2} * kMicroSteps;

// The buckets are so small that there are several.
TrainingOptions shared_training(std::uint32_t ranks, std::uint32_t micro_steps) {
  TrainingOptions training = kMomentum;
  training.ranks = ranks;
  training.micro_steps = micro_steps;
  training.bucket_bytes = 256;
  return training;
}

constexpr std::uint32_t kRanks = HashCommunicator::kRanks;

class SharedTrainingTest : public ExecutorTest {
 protected:
  SharedTrainingTest() { use_network(kNetwork, shared_training(kRanks, kMicroSteps)); }
};

INSTANTIATE_TEST_SUITE_P(Policies, SharedTrainingTest, ::testing::ValuesIn(plan_cases()),
                         [](const auto& test) { return test.param.name; });

// Each micro-step adds to the accumulated gradients, and the last one reduces them. Updates read nothing but
// the reduced gradients.
TEST_P(SharedTrainingTest, EveryOpReadsWhatAnInterpreterWithoutSharedMemoryReads) {
  const std::uint64_t networks = testing::extent({.usual = 6, .under_sanitizers = 2, .in_long_run = 6});
  for (std::uint64_t network = 0; network < networks; ++network) {
    for (const auto& [ranks, micro_steps] :
         {std::pair(kRanks, 1U), {1U, kMicroSteps}, {kRanks, kMicroSteps}}) {
      SCOPED_TRACE("network " + std::to_string(network) + ", " + std::to_string(ranks) + " ranks, " +
                   std::to_string(micro_steps) + " micro-steps");
      use_network(network, shared_training(ranks, micro_steps));
      ASSERT_EQ(tape_->collective(), ranks > 1);
      const auto device = tight_device(prediction_);
      train_and_compare(*device, *tape_, schedule_, kTwoUpdates, micro_steps);
      expect_nothing_held(*device);
    }
  }
}

TEST_P(SharedTrainingTest, DelaysDoNotChangeWhatOpsRead) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE("delay seed " + std::to_string(seed));
    const auto device = tight_device(prediction_, seed);
    train_and_compare(*device, *tape_, schedule_, kMicroSteps + 1, kMicroSteps);
  }
}

// Hashes parameters and the optimizer's state, bit by bit.
std::uint64_t hash_of_state(ExecutorRig& rig, HashProgram& program) {
  const StreamId stream = rig.streams[StreamRole::kCompute];
  std::uint64_t hash = 0;
  for (const std::vector<float>& parameter : rig.parameters.download(rig.pinned, stream, program)) {
    hash = hash_bytes(hash, std::as_bytes(std::span(parameter)));
  }
  for (const auto& states : rig.parameters.download_states(rig.pinned, stream, program)) {
    for (const std::vector<float>& state : states) {
      hash = hash_bytes(hash, std::as_bytes(std::span(state)));
    }
  }
  return hash;
}

// Micro-steps before the last one change no parameter and no state. All micro-steps allocate memory alike.
TEST_P(SharedTrainingTest, OnlyTheLastMicroStepChangesParametersAndStates) {
  const auto device = tight_device(prediction_);
  HashProgram program;
  ExecutorRig rig(*device, *tape_, {.program = &program});
  Executor executor(rig.parts(*tape_, schedule_, &program));
  std::vector<AddressRange> placements;
  for (std::uint64_t step = 0; step < kTwoUpdates; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const StepScalars scalars = scalars_of(step, kMicroSteps);
    const std::uint64_t before = hash_of_state(rig, program);
    write_batch(rig, step);
    executor.wait(executor.submit(rig.inputs.of_step(step), scalars));
    EXPECT_EQ(hash_of_state(rig, program) != before, scalars.updates());
    placements = step == 0 ? executor.placements() : placements;
    EXPECT_TRUE(executor.placements() == placements);
  }
}

// Runs `schedule` in one permitted order, and returns the first finding.
std::string finding_in_order(std::uint64_t seed, const Tape& tape, const Schedule& schedule) {
  const auto device = make_random_order_device(seed, Check::kBoth);
  ExecutorRig rig(*device, tape);
  {
    Executor executor(rig.parts(tape, schedule));
    StepLoop(rig, executor, kMicroSteps).run(kTwoUpdates);
  }
  return device->findings().empty() ? "" : device->findings().front().text;
}

TEST_P(SharedTrainingTest, NoOrderRacesOrReadsAStaleVersion) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    ASSERT_EQ(finding_in_order(seed, *tape_, schedule_), "") << "order seed " << seed;
  }
}

// Shows that the test above can fail: here no reduction waits for its gradients, or no other op waits for a
// reduction.
TEST_P(SharedTrainingTest, ReductionsThatAreNotOrderedAreFound) {
  const auto reduces = [](const Instruction& it) { return it.stream == StreamRole::kReduce; };
  Schedule early = schedule_;
  Schedule late = schedule_;
  for (std::size_t index = 0; index < schedule_.instructions.size(); ++index) {
    if (reduces(schedule_.instructions[index])) {
      early.instructions[index].waits.clear();
    } else {
      std::erase_if(late.instructions[index].waits,
                    [&](const Wait& wait) { return reduces(schedule_.instructions[wait.instruction]); });
    }
  }
  EXPECT_NE(finding_in_order(0, *tape_, early), "");
  EXPECT_NE(finding_in_order(0, *tape_, late), "");
}

// Each op's work in the last step of a prediction, by the op's name.
std::map<std::string, TraceEvent> traced_ops(const Prediction& prediction) {
  std::map<std::string, TraceEvent> result;
  for (const TraceEvent& event : prediction.trace) {
    if (event.kind == TraceEvent::Kind::kWork) {
      result.emplace(event.name, event);
    }
  }
  return result;
}

// Reductions run on their own stream and overlap the backward pass, since the simulated peers are slow
// enough.
TEST_P(SharedTrainingTest, GradientsAreReducedBetweenTheirProducersAndTheirUpdatesUnderBackward) {
  use_network(kNetwork, shared_training(kRanks, 1));
  const Prediction prediction =
      predict(*tape_, schedule_,
              {.profile = sim_profile("cpu"),
               .trace = true,
               .collectives = {.devices = kRanks, .peers = {.bytes_per_second = 1e9, .seconds = 1e-5}}});
  const std::map<std::string, TraceEvent> traced = traced_ops(prediction);
  std::size_t under_backward = 0;
  for (const Op& op : tape_->ops()) {
    const TraceEvent& event = traced.at(op.name);
    EXPECT_EQ(prediction.stream_names[event.stream], op.collective() ? "reduce" : "compute") << op.name;
    for (const ValueId read : op.reads) {
      const OpId producer = tape_->producer(read);
      if (producer != kNone && (op.collective() || tape_->op(producer).collective())) {
        const TraceEvent& made = traced.at(tape_->op(producer).name);
        EXPECT_GE(event.begin_seconds, made.end_seconds) << op.name << " reads of " << made.name;
      }
    }
    if (op.collective() && op.phase == Phase::kUpdate) {
      EXPECT_GT(event.end_seconds, event.begin_seconds);
      under_backward += std::ranges::any_of(tape_->ops(), [&](const Op& other) {
        const TraceEvent& beside = traced.at(other.name);
        return other.phase == Phase::kBackward && !other.collective() &&
               beside.begin_seconds < event.end_seconds && event.begin_seconds < beside.end_seconds;
      });
    }
  }
  EXPECT_GT(under_backward, 0U);
}

// Further behaviour of executors with several ranks, which does not depend on the policy.
class RanksTest : public ::testing::Test {
 protected:
  // Returns the error of submitting steps and waiting for them. Afterwards, the pools hold only parameters
  // and batches.
  std::string failure_of_run(ExecutorRig& rig, Communicator& communicator) {
    const std::uint64_t parameters = rig.pool.statistics().in_use_bytes;
    const std::uint64_t staged = rig.pinned.statistics().in_use_bytes;
    ExecutorParts parts = rig.parts(*tape_, schedule_);
    parts.communicator = &communicator;
    std::string failure;
    try {
      Executor executor(parts);
      try {
        StepLoop(rig, executor).run(4);
      } catch (const DeviceError&) {
        EXPECT_TRUE(executor.failed());
        EXPECT_THROW(executor.submit(rig.inputs.of_step(0), kScalars), DeviceError);
        throw;
      }
    } catch (const DeviceError& error) {
      failure = error.what();
    }
    EXPECT_EQ(rig.pool.statistics().in_use_bytes, parameters);
    EXPECT_EQ(rig.pinned.statistics().in_use_bytes, staged);
    return failure;
  }

  const TapePtr tape_ = training_tape(random_network(3), {}, shared_training(kRanks, 1));
  const Schedule schedule_ = schedule_of(*tape_, Policy::kOffloadAll);
  const std::unique_ptr<Device> device_ = make_cpu_device({});
};

TEST_F(RanksTest, AnExecutorWithoutCommunicatorIsRefused) {
  ExecutorRig rig(*device_, *tape_);
  ExecutorParts parts = rig.parts(*tape_, schedule_);
  parts.communicator = nullptr;
  try {
    const Executor executor(parts);
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'" + tape_->model() + "' is trained by several ranks together"));
    EXPECT_THAT(error.what(), HasSubstr("communicator"));
  }
}

// A host that waited on the device alone would wait forever for a rank that is gone.
TEST_F(RanksTest, TheHostWaitsForResultsThroughTheCommunicator) {
  class LostRank : public HashCommunicator {
   public:
    using HashCommunicator::HashCommunicator;
    void wait(const Frontier& frontier) override {
      if (waits_++ == 1) {
        throw DeviceError("rank 2 does not answer");
      }
      HashCommunicator::wait(frontier);
    }

   private:
    int waits_ = 0;
  };
  ExecutorRig rig(*device_, *tape_);
  LostRank communicator(*device_, *tape_);
  EXPECT_EQ(failure_of_run(rig, communicator), "rank 2 does not answer");
}

TEST_F(RanksTest, ACollectiveThatCannotBeSubmittedEndsTheExecutor) {
  class BrokenOff : public HashCommunicator {
   public:
    using HashCommunicator::all_reduce;
    using HashCommunicator::HashCommunicator;
    Point all_reduce(StreamId stream, std::span<const Collective> parts) override {
      if (submitted_++ == 4) {
        throw DeviceError("rank 1 has failed");
      }
      return HashCommunicator::all_reduce(stream, parts);
    }

   private:
    int submitted_ = 0;
  };
  ExecutorRig rig(*device_, *tape_);
  BrokenOff communicator(*device_, *tape_);
  EXPECT_EQ(failure_of_run(rig, communicator), "rank 1 has failed");
}

TEST_F(RanksTest, StepsWithCollectivesAreNoGraphs) {
  class CapturingDevice : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    std::string why_not_capture() const override { return ""; }
  };
  const CapturingDevice capturing(*device_);
  EXPECT_EQ(why_not_graph(capturing, *training_tape(random_network(3)), nullptr), "");
  EXPECT_THAT(why_not_graph(capturing, *tape_, nullptr), HasSubstr("ranks"));
}

// --- defects that were found -------------------------------------------------------------------------------

// Regression: the persistent buffers of `baseline` were ready only for the compute stream, so the first load
// wrote to memory that its last owner still used. (Seed 8 of tests/random found this in the first step after
// an evaluation.)
TEST(Executor, FirstStepWaitsForWhoeverHadThePersistentBuffersBefore) {
  const TapePtr tape = training_tape(zoo_network("lenet", 4));
  const Schedule schedule = schedule_of(*tape, Policy::kBaseline);
  const auto device = make_sim_device({.profile = sim_profile("cpu"), .check_races = true});
  ExecutorRig rig(*device, *tape);
  const StreamId compute = rig.streams[StreamRole::kCompute];
  const AddressRange block = rig.pool.allocate(std::uint64_t{64} << 20, compute).value();
  const Access write{.range = block};
  device->submit(compute, {.name = "earlier", .writes = {&write, 1}});
  rig.pool.free(block, device->frontier(compute));
  Executor executor(rig.parts(*tape, schedule));
  StepLoop(rig, executor).run(1);
  EXPECT_EQ(device->findings().size(), 0U) << device->findings().front().text;
}

// Regression: only the name of a layout distinguished parameters, so a parameter of another size was bound.
TEST(ParameterStore, RefusesATapeOfAnotherNetwork) {
  const TapePtr tape = training_tape(random_network(1));
  const TapePtr other = training_tape(zoo_network("lenet", 1));
  const auto device = make_sim_device({.profile = sim_profile("cpu")});
  ExecutorRig rig(*device, *tape);
  const Schedule schedule = schedule_of(*other, Policy::kOffloadNone);
  EXPECT_THROW(Executor(rig.parts(*other, schedule)), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::testing
