// Planning and training on GPUs that are not there (tests/fakes/fake_gpus.h): everything is computed, streams
// run in orders that are drawn.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fakes/fake_gpus.h"
#include "tests/train/samples.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/error.h"
#include "vdnn/session.h"
#include "vdnn/trainer.h"

namespace vdnn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class GpuTraining : public ::testing::Test {
 protected:
  // What a test leaves behind is a finding.
  void TearDown() override {
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
    EXPECT_THAT(cuda_->leaks(), IsEmpty());
  }

  void have_gpus(const FakeCudaOptions& options) {
    cuda_ = std::make_shared<FakeCuda>(options);
    gpus_ = make_fake_gpus(cuda_);
  }
  RunOptions options(const std::string& device, Policy policy = Policy::kOffloadAll) const {
    return {.model = {.model = "lenet", .batch = 4},
            .device = device,
            .gpus = gpus_,
            .threads = 1,
            .policy = policy,
            .training = {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}}};
  }
  static TrainingResult train(const PlannedRun& run) {
    DatasetSplits data = data_for(run, "synthetic");
    data.test = std::make_unique<FirstSamples>(std::move(data.test), 8);
    return Trainer(run, data, {.learning_rate = 0.02F, .steps = 3, .session = {.seed = 7}}).train({});
  }

  std::shared_ptr<FakeCuda> cuda_ = std::make_shared<FakeCuda>();
  std::shared_ptr<GpuSystem> gpus_ = make_fake_gpus(cuda_);
};

// --- which device ------------------------------------------------------------------------------------------

TEST_F(GpuTraining, AutoIsTheGpuWithTheMostFreeMemoryAndLeavesTheOthersAlone) {
  have_gpus({.gpus = 3});
  cuda_->take_memory(0, 512 * kMiB);
  cuda_->take_memory(2, 256 * kMiB);
  const RunTarget target = plan_run(options("auto")).target;
  EXPECT_EQ(target.name, "cuda:1");
  EXPECT_EQ(target.gpu, 1);
  EXPECT_THAT(target.why, HasSubstr("Fake GPU 1"));
  EXPECT_TRUE(cuda_->uses(1));
  EXPECT_FALSE(cuda_->uses(2));
}

TEST_F(GpuTraining, AutoIsCpuWhereNoGpuCanBeDrivenAndSaysWhy) {
  for (const FakeCudaOptions& without : {FakeCudaOptions{.driver_version = 0}, FakeCudaOptions{.gpus = 0},
                                         FakeCudaOptions{.driver_version = 9000}}) {
    have_gpus(without);
    const PlannedRun run = plan_run(options("auto"));
    EXPECT_EQ(run.target.name, "cpu");
    EXPECT_FALSE(run.target.gpu);
    EXPECT_THAT(run.target.why, HasSubstr("driver"));
    EXPECT_THROW(plan_run(options("cuda:0")), DeviceError);
  }
}

TEST_F(GpuTraining, AGpuThatIsNotThereIsRefusedWithTheLastThatIs) {
  have_gpus({.gpus = 2});
  EXPECT_THAT(([&] { plan_run(options("cuda:2")); }),
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("cuda:1")));
}

TEST_F(GpuTraining, ABudgetOfMoreThanIsFreeIsRefusedWithWhatIs) {
  have_gpus({.memory_bytes = 1024 * kMiB, .used_bytes = 24 * kMiB});
  RunOptions run = options("cuda:0");
  run.memory_bytes = 1002 * kMiB;
  EXPECT_THAT(([&] { plan_run(run); }),
              ::testing::ThrowsMessage<OutOfMemory>(HasSubstr(std::to_string(1000 * kMiB))));
}

TEST_F(GpuTraining, DebuggingAidsOfCpuAreRefused) {
  const PlannedRun run = plan_run(options("cuda:0"));
  EXPECT_THROW(Session(run, {.link_gbytes_per_second = 1}), InvalidArgument);
  EXPECT_THROW(Session(run, {.delay_seed = 1}), InvalidArgument);
  EXPECT_THROW(Session(run, {.check_accesses = true}), InvalidArgument);
  RunOptions aligned = options("cuda:0");
  aligned.page_aligned_blocks = true;
  EXPECT_THROW(plan_run(aligned), InvalidArgument);
}

// --- training ----------------------------------------------------------------------------------------------

TEST_F(GpuTraining, OneHashAndThePredictedPeakUnderEveryPolicy) {
  std::set<std::string> hashes;
  std::uint64_t seed = 0;
  for (const Policy policy : kPolicies) {
    for (const bool large : {false, true}) {
      SCOPED_TRACE(to_string(policy) + (large ? ", all that is free" : ", the smallest budget"));
      have_gpus({.seed = seed++});
      RunOptions asked = options("cuda:0", policy);
      if (!large) {
        asked.memory_bytes = plan_run(asked).smallest_budget_bytes();
      }
      const PlannedRun run = plan_run(asked);
      EXPECT_EQ(run.target.name, "cuda:0");
      const TrainingResult result = train(run);
      EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
      EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
      EXPECT_EQ(result.system_allocations_after_first_step, 0U);
      EXPECT_THAT(cuda_->misuses(), IsEmpty());
      EXPECT_THAT(cuda_->leaks(), IsEmpty());
      hashes.insert(result.weights_sha256);
    }
  }
  EXPECT_EQ(hashes.size(), 1U);
}

TEST_F(GpuTraining, StaysInsideItsBudgetAsTheCardSeesIt) {
  for (const bool nvml : {true, false}) {
    SCOPED_TRACE(nvml ? "NVML" : "no NVML");
    have_gpus({.seed = 1, .context_bytes = 301 * kMiB + 3, .nvml = nvml});
    RunOptions asked = options("cuda:0");
    asked.memory_bytes = plan_run(asked).smallest_budget_bytes();
    const PlannedRun run = plan_run(asked);
    EXPECT_EQ(run.target.library_bytes, 301 * kMiB + 3);
    EXPECT_EQ(train(run).peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(cuda_->peak_bytes(0), *asked.memory_bytes);
    --*asked.memory_bytes;
    EXPECT_THROW(train(plan_run(asked)), OutOfMemory);
  }
}

TEST_F(GpuTraining, LearnsWhatCpuLearns) {
  const TrainingResult gpu = train(plan_run(options("cuda:0")));
  const TrainingResult cpu = train(plan_run(options("cpu")));
  EXPECT_NEAR(gpu.loss, cpu.loss, 1e-4 * cpu.loss);
  EXPECT_NE(gpu.weights_sha256, "");
}

// A Session's life: steps, evaluation between them, values by name, a state that another one goes on with.
TEST_F(GpuTraining, EvaluatesAndGoesOnFromAState) {
  const auto inputs = [](const Tape& tape) {
    std::vector<std::vector<std::byte>> bytes;
    for (const ValueId input : tape.inputs()) {
      bytes.emplace_back(tape.value(input).bytes);
    }
    return bytes;
  };
  const PlannedRun run = plan_run(options("cuda:0"));
  const auto data = inputs(*run.tape);
  const auto step = [&](Session& session) {
    return session.step({std::span(data[0]), std::span(data[1])}, 0.1F).loss;
  };
  TrainingState state;
  double second = 0;
  std::string weights;
  {
    Session session(run, {.seed = 3});
    step(session);
    state = session.state();
    EXPECT_EQ(session.evaluation_batch(), 4);
    session.evaluate({std::span(data[0]), std::span(data[1])});
    second = step(session);
    weights = session.weights_sha256();
  }
  Session other(run, {.seed = 4});
  other.restore(state);
  EXPECT_EQ(step(other), second);
  EXPECT_EQ(other.weights_sha256(), weights);
  EXPECT_EQ(other.device().properties().name, "cuda:0");
}

TEST_F(GpuTraining, SaysWhoseAlgorithmsTheyAre) {
  EXPECT_EQ(plan_run(options("cuda:0")).catalog->algorithms_source(), "fake engines");
}

}  // namespace
}  // namespace vdnn::testing
