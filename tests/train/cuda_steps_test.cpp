// Whole steps of every network of the zoo on the `cuda` driver, over a fake runtime with logical memory.
// Device, pools, executor and the library of CUDA's ops are real. Models have their default batch, and the
// engines are those that cuDNN listed for an H200. Only arithmetic is missing. CUDA's own rules judge the
// order (tests/fakes/cuda_order.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/known_gpus.h"
#include "src/ops/cuda/recorded_engines.h"
#include "src/ops/forwarding_program.h"
#include "streams/cuda/cuda_device.h"
#include "tests/exec/executor_rig.h"
#include "tests/extent.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/recording_cuda_ops.h"
#include "vdnn/planned_run.h"
#include "vdnn/predictor.h"
#include "vdnn/size.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {
namespace {

const std::uint64_t kSeeds = extent({.usual = 10, .in_long_run = 1000});
// The first step allocates memory, the second overlaps the first, and the third uses the state that both
// leave.
constexpr std::uint64_t kSteps = 3;
constexpr std::uint64_t kEnough = std::uint64_t{1} << 43U;

std::shared_ptr<const cuda::EngineSource> recorded_h200() {
  const auto gpus = cuda::known_gpus();
  const auto h200 = std::ranges::find(gpus, "h200", &cuda::KnownGpu::name);
  return std::make_shared<cuda::RecordedEngines>(h200->recorded_engines);
}

// A run to train on a GPU, with or without graphs.
struct Subject {
  const Tape& tape;
  const Schedule& schedule;
  OpProgram& program;
  bool graph = false;
};

// Notifies the fake when the host writes the numbers of a step.
class NotedProgram final : public ops::ForwardingProgram {
 public:
  NotedProgram(OpProgram& program, FakeCuda& fake) : ForwardingProgram(program), fake_(fake) {}

  void write_step_numbers(const StepScalars&,
                          std::span<std::byte, kStepNumbersBytes> numbers) const override {
    fake_.touch_on_host(
        {.begin = reinterpret_cast<std::uintptr_t>(numbers.data()), .bytes = numbers.size_bytes()},
        "step numbers");
  }

 private:
  FakeCuda& fake_;
};

// A training run on a GPU of which only CUDA is fake.
class Training {
 public:
  Training(const Subject& subject, std::uint64_t seed, std::uint64_t granule_bytes)
      : fake_(std::make_shared<FakeCuda>(FakeCudaOptions{
            .seed = seed, .memory_bytes = kEnough, .granule_bytes = granule_bytes, .logical_memory = true})),
        device_(make_cuda_device({.host_budget_bytes = kEnough}, fake_)),
        program_(subject.program, *fake_),
        rig_(std::make_unique<ExecutorRig>(*device_, subject.tape,
                                           RigOptions{.program = &program_, .contents = false})),
        results_(subject.tape.results().size()) {
    ExecutorParts parts = rig_->parts(subject.tape, subject.schedule, &program_);
    parts.graph = subject.graph;
    executor_ = std::make_unique<Executor>(parts);
  }

  // Like a trainer, stages the next batch before a step is submitted, and reads its losses after the next
  // step's submission.
  void step() {
    if (tickets_.empty()) {
      stage(0);
    }
    stage(tickets_.size() + 1);
    const std::uint64_t waits = host_waits();
    tickets_.push_back(executor_->submit(rig_->inputs.of_step(tickets_.size()), {}));
    EXPECT_EQ(host_waits(), waits) << "the host waits inside a step";
    if (tickets_.size() > 1) {
      read_losses(tickets_.size() - 2);
      EXPECT_GT(host_waits(), waits) << "reading a loss must count as a wait";
    }
  }
  void run(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
      step();
    }
  }

  // The address of every buffer, in the order of the schedule.
  const std::vector<AddressRange>& placements() const { return executor_->placements(); }
  // The number of calls that allocate or release memory of the GPU or of the host.
  std::uint64_t memory_calls() const {
    return calls({"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                  "cuMemRelease", "cuMemAddressFree", "cudaHostRegister", "cudaHostUnregister"});
  }
  const Device& device() const { return *device_; }
  FakeCuda& fake() { return *fake_; }

  // Destroys everything and expects neither leaks nor misuse.
  void finish() {
    executor_.reset();
    rig_.reset();
    expect_nothing_held(*device_);
    device_.reset();
    EXPECT_EQ(fake_->leaks(), std::vector<std::string>{});
    EXPECT_EQ(fake_->misuses(), std::vector<std::string>{});
    for (const SimFinding& finding : fake_->findings()) {
      ADD_FAILURE() << finding.text;
    }
  }

 private:
  std::uint64_t calls(std::initializer_list<const char*> names) const {
    std::uint64_t sum = 0;
    for (const char* const name : names) {
      sum += fake_->calls(name);
    }
    return sum;
  }
  std::uint64_t host_waits() const {
    return calls({"cudaEventSynchronize", "cudaStreamSynchronize", "cudaEventQuery"});
  }

  void stage(std::uint64_t step) {
    if (step >= kStagedBatches) {
      device_->synchronize(tickets_[step - kStagedBatches].inputs_copied);
    }
    for (const AddressRange& input : rig_->inputs.of_step(step)) {
      fake_->touch_on_host(input, "batch");
    }
  }
  void read_losses(std::uint64_t step) {
    executor_->wait(tickets_[step]);
    for (std::size_t index = 0; index < results_; ++index) {
      fake_->touch_on_host(executor_->result(step, index), "loss");
    }
  }

  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<Device> device_;
  NotedProgram program_;
  std::unique_ptr<ExecutorRig> rig_;
  std::unique_ptr<Executor> executor_;
  std::size_t results_;
  std::vector<StepTicket> tickets_;
};

// Calls test(subject) for each policy.
template <class Test>
void each_policy(const Network& network, const TrainingOptions& training, const Test& test) {
  const auto library = make_recording_cuda_ops(recorded_h200());
  const auto tape = lower_to_tape(network, library->catalog(), training);
  for (const Policy policy : kPolicies) {
    SCOPED_TRACE(to_string(policy));
    const Plan plan = make_plan(*tape, {.policy = policy});
    const Schedule schedule = make_schedule(*tape, plan);
    const auto program = library->compile(*tape, plan.algorithms);
    test(Subject{.tape = *tape, .schedule = schedule, .program = *program});
  }
}

template <class Test>
void each_policy(const std::string& model, const Test& test) {
  each_policy(make_model({.model = model}), {.optimizer = SgdSpec{.momentum = 0.9F}}, test);
}

class CudaSteps : public ::testing::TestWithParam<std::string> {};

void expect_clean_steps(const Subject& subject, std::uint64_t seed, std::uint64_t steps = kSteps) {
  // Larger than a GPU's granule, so that mapping takes less time.
  constexpr std::uint64_t kGranule = std::uint64_t{64} << 20U;
  Training training(subject, seed, kGranule);
  training.step();
  const std::vector<AddressRange> placements = training.placements();
  const std::uint64_t memory_calls = training.memory_calls();
  EXPECT_GT(memory_calls, 0U);
  for (std::uint64_t step = 1; step < steps; ++step) {
    training.step();
    EXPECT_EQ(training.placements(), placements) << "step " << step;
  }
  EXPECT_EQ(training.memory_calls(), memory_calls);
  EXPECT_EQ(training.fake().calls("cudaGraphLaunch"), subject.graph ? steps - 1 : 0);
  training.finish();
}

// A failure names policy and seed; the test's name contains the network.
TEST_P(CudaSteps, NeverWaitNorRaceNorLeakNorMoveNorTakeMemoryAfterTheFirst) {
  std::uint64_t seed = 0;
  each_policy(GetParam(), [&seed](const Subject& subject) {
    for (const std::uint64_t end = seed + kSeeds; seed < end && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      expect_clean_steps(subject, seed);
    }
  });
}

// Captures one graph per staged batch and place for results, and then replays each. The device compares
// replayed with captured work, address by address. This test compares captured steps with the first step.
TEST_P(CudaSteps, AreTheSameAsGraphs) {
  constexpr std::uint64_t kCaptured = std::uint64_t{2} * kStagedBatches;
  std::uint64_t seed = 0;
  each_policy(GetParam(), [&seed](Subject subject) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    subject.graph = true;
    expect_clean_steps(subject, seed++, 1 + 2 * kCaptured);
  });
}

// The driver commits the planned bytes, and CUDA allocates the same.
void expect_predicted(const Subject& subject, const Prediction& prediction) {
  Training training(subject, 1, sim_profile("h200").granule_bytes);
  training.run(kSteps);
  const DeviceCounters counters = training.device().counters();
  EXPECT_EQ(counters.peak_committed_bytes, prediction.peak_bytes);
  EXPECT_EQ(training.fake().peak_mapped_bytes(), prediction.peak_bytes);
  EXPECT_EQ(counters.peak_pinned_bytes, prediction.host_bytes);
  EXPECT_EQ(training.fake().peak_page_locked_bytes(), prediction.host_bytes);
  training.finish();
}

TEST_P(CudaSteps, TakeThePredictedPeak) {
  each_policy(GetParam(), [](Subject subject) {
    for (const bool graph : {false, true}) {
      SCOPED_TRACE(graph ? "as graphs" : "one by one");
      subject.graph = graph;
      expect_predicted(
          subject, predict(subject.tape, subject.schedule, {.profile = sim_profile("h200"), .graph = graph}));
    }
  });
}

// A network that needs only our own kernels.
Network normalising_network() {
  NetworkBuilder net("normalising", {4, 8, 12, 12});
  Tensor x = net.input();
  for (const char* const stage : {"first", "second", "third"}) {
    const std::string name = stage;
    x = net.relu(name + "_relu", net.batch_normalization(name + "_norm", x));
    x = net.add(name + "_sum", x, net.sigmoid(name + "_sigmoid", x));
  }
  net.softmax_cross_entropy("loss", net.group_normalization("logits", x, {.groups = 2}));
  return std::move(net).build();
}

// The device decides whether a step is skipped; the host submits the next one without waiting for the
// decision.
TEST(CudaStepsTest, WithScaledLossesTheHostDoesNotWaitEither) {
  std::uint64_t seed = 0;
  const TrainingOptions training{.optimizer = AdamSpec{},
                                 .precision = {.storage = DataType::kF16, .fp32_layers = {}}};
  each_policy(normalising_network(), training, [&seed](Subject subject) {
    ASSERT_NE(subject.tape.loss_scale(), kNone);
    for (const bool graph : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (graph ? ", as graphs" : ", one by one"));
      subject.graph = graph;
      expect_clean_steps(subject, seed++, 1 + 4 * kStagedBatches);
    }
  });
}

// Plans as `vdnn plan --device sim:h200` does, with cuDNN itself if it can be loaded. That takes seconds per
// network, so all policies share one plan.
TEST(CudaStepsTest, TakeWhatIsPlannedOnTheSimulatedGpu) {
  for (const char* const model : {"vgg16", "resnet50"}) {
    const PlannedRun run =
        plan_run({.model = {.model = model}, .device = "sim:h200", .policy = kPolicies[0]});
    EXPECT_NE(run.catalog->algorithms_source().find("cudnn"), std::string::npos);
    const auto library = make_recording_cuda_ops(recorded_h200());
    for (const Policy policy : kPolicies) {
      SCOPED_TRACE(model + (" " + to_string(policy)));
      const PlanOptions options{.policy = policy, .preference = run.options.algorithms};
      const Plan plan = make_plan(*run.tape, options);
      const Schedule schedule = make_schedule(*run.tape, plan);
      const auto program = library->compile(*run.tape, plan.algorithms);
      const Prediction prediction = policy == kPolicies[0] ? run.prediction : predict_policy(run, options);
      expect_predicted({.tape = *run.tape, .schedule = schedule, .program = *program}, prediction);
      std::cout << "  " << model << ", " << to_string(policy) << ": " << format_size(prediction.peak_bytes)
                << ", " << format_size(prediction.host_bytes) << " of the host's\n";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaSteps, ::testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// --- lost calls are noticed --------------------------------------------------------------------------------

// True if the judge notices that the second step loses its `nth` call; empty if the step has fewer calls.
std::optional<bool> found_without(const Subject& subject, const char* call, std::uint64_t nth) {
  Training training(subject, 0, std::uint64_t{2} << 20U);
  training.step();
  training.fake().lose_call(nth, call);
  const std::uint64_t before = training.fake().calls(call);
  training.step();
  if (training.fake().calls(call) - before < nth) {
    return std::nullopt;
  }
  training.run(kSteps - 2);
  return !training.fake().findings().empty();
}

struct Count {
  std::uint64_t calls = 0;
  std::uint64_t found = 0;
};

Count count_found(const char* call) {
  Count count;
  each_policy("lenet", [&](const Subject& subject) {
    for (std::uint64_t nth = 1;; ++nth) {
      const std::optional<bool> found = found_without(subject, call, nth);
      if (!found) {
        return;
      }
      ++count.calls;
      count.found += *found ? 1 : 0;
    }
  });
  std::cout << "  " << count.found << " of " << count.calls << " calls of " << call
            << " were noticed when they were lost\n";
  return count;
}

// Not every wait matters. A frontier has one point for each stream that contributed to it, and waiting for
// one of them often implies waiting for another. Some other waits only determine when a prefetch starts, and
// no data depends on that.
TEST(LostCalls, MostLostWaitsAreNoticed) {
  const Count count = count_found("cudaStreamWaitEvent");
  EXPECT_GT(2 * count.found, count.calls);
}

// Every submission has an event. Streams wait for only few of these.
TEST(LostCalls, SomeLostEventsAreNoticed) {
  EXPECT_GT(count_found("cudaEventRecord").found, 0U);
}

}  // namespace
}  // namespace vdnn::testing
