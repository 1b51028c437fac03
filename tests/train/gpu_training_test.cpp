// Planning and training on fake GPUs (tests/fakes/fake_gpus.h). They compute everything and run streams in
// random orders.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "src/ops/cuda/gpu_system.h"
#include "src/run/scaling.h"
#include "tests/data/samples.h"
#include "tests/fakes/fake_gpus.h"
#include "tests/fakes/fake_vendor_library.h"
#include "tests/train/gpu_checks.h"
#include "tests/train/random_inputs.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/error.h"
#include "vdnn/learned_costs.h"
#include "vdnn/nonfinite.h"
#include "vdnn/schedule_file.h"
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
  // A leak in a test is a finding.
  void TearDown() override { expect_nothing_found(); }
  void expect_nothing_found() const {
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
    EXPECT_THAT(cuda_->leaks(), IsEmpty());
    for (const SimFinding& finding : cuda_->findings()) {
      ADD_FAILURE() << finding.text;
    }
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
  static TrainingResult train(const PlannedRun& run, const TrainOptions& more = {.steps = 3},
                              const std::function<void(const StepReport&)>& report = {}) {
    DatasetSplits data = data_for(run, "synthetic");
    data.test = std::make_unique<FirstSamples>(std::move(data.test), 8);
    TrainOptions options = more;
    options.learning_rate = 0.02F;
    options.session.seed = 7;
    return Trainer(run, data, options).train(report);
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
  EXPECT_THAT(target.why,
              ::testing::AllOf(HasSubstr("Fake GPU 1"), HasSubstr("256 MiB"), HasSubstr("kept back")));
  EXPECT_TRUE(cuda_->uses(1));
  EXPECT_FALSE(cuda_->uses(0));
  EXPECT_FALSE(cuda_->uses(2));
}

// For ranks on GPUs, planning measures the memory of their communicator on the device. The pool cannot use
// that memory.
TEST_F(GpuTraining, APlanLeavesRoomForWhatJoinsTheRanks) {
  constexpr std::uint64_t kTaken = 40 * kMiB;
  RunOptions alone = options("cuda:0");
  alone.memory_bytes = 200 * kMiB;
  RunOptions ranks = alone;
  ranks.training.ranks = 2;
  const PlannedRun unknown = plan_run(ranks);
  int asked = 0;
  ranks.communicator_bytes = [&](Device& device, int gpu) {
    EXPECT_EQ(device.properties().name, "cuda:0");
    EXPECT_EQ(gpu, 0);
    ++asked;
    return kTaken;
  };
  const PlannedRun known = plan_run(ranks);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(known.target.communicator_bytes, kTaken);
  EXPECT_EQ(known.target.library_bytes, unknown.target.library_bytes + kTaken);
  EXPECT_EQ(known.smallest_budget_bytes(), unknown.smallest_budget_bytes() + kTaken);
  EXPECT_TRUE(known.fits());
  ranks.memory_bytes = known.smallest_budget_bytes() - 1;
  EXPECT_FALSE(plan_run(ranks).fits());
  EXPECT_EQ(asked, 2);
  alone.communicator_bytes = ranks.communicator_bytes;
  EXPECT_EQ(plan_run(alone).target.communicator_bytes, 0U);
  EXPECT_EQ(asked, 2) << "a device that trains alone has no communicator";
}

// Regression: without NVML, the query initialised a GPU that the process did not use and reset it afterwards.
// If another thread had begun to use that GPU meanwhile, the thread lost everything on it.
TEST_F(GpuTraining, NoGpuIsResetToBeAskedWhatItHasFree) {
  for (const bool nvml : {true, false}) {
    have_gpus({.gpus = 2, .context_bytes = 100 * kMiB, .nvml = nvml});
    EXPECT_EQ(gpus_->free_bytes(1), FakeCudaOptions().memory_bytes - (nvml ? 0 : 100 * kMiB));
    EXPECT_EQ(cuda_->calls("cudaDeviceReset"), 0U);
    EXPECT_FALSE(cuda_->uses(1));
  }
}

// Regression: each call restored GPU 0 and so initialised it, although the program did not use it.
TEST_F(GpuTraining, TheOtherGpuIsLeftAloneByAWholeTraining) {
  have_gpus({.gpus = 2});
  train(plan_run(options("cuda:1")));
  EXPECT_TRUE(cuda_->uses(1));
  EXPECT_FALSE(cuda_->uses(0));
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

// Regression: `vdnn plan --memory 26MiB`, as in README, was an error on every machine with a GPU.
TEST_F(GpuTraining, AutoIsCpuWhereTheBudgetIsNoneForTheGpu) {
  have_gpus({.context_bytes = 300 * kMiB});
  RunOptions run = options("auto");
  run.memory_bytes = 26 * kMiB;
  EXPECT_EQ(plan_run(run).target.name, "cpu");
  have_gpus({.memory_bytes = 1024 * kMiB, .used_bytes = 24 * kMiB});
  run = options("auto");
  run.memory_bytes = 1002 * kMiB;
  EXPECT_EQ(plan_run(run).target.name, "cpu");
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

TEST_F(GpuTraining, TheDefaultBudgetLeavesTheReserveThatIsAskedFor) {
  have_gpus({.memory_bytes = 1024 * kMiB});
  RunOptions run = options("cuda:0");
  EXPECT_EQ(plan_run(run).target.budget_bytes, 768 * kMiB);
  run.gpu_reserve_bytes = 24 * kMiB;
  EXPECT_EQ(plan_run(run).target.budget_bytes, 1000 * kMiB);
  run.gpu_reserve_bytes = 1020 * kMiB;
  EXPECT_THAT(([&] { Session(plan_run(run)); }),
              ::testing::ThrowsMessage<OutOfMemory>(HasSubstr("besides 1020 MiB")));
  run.device = "cpu";
  EXPECT_THROW(plan_run(run), InvalidArgument);
  // Regression: `auto` chose `cpu` here.
  run.memory_bytes = 512 * kMiB;
  run.device = "auto";
  EXPECT_THROW(plan_run(run), InvalidArgument);
}

// Regression: a session required all memory that had been free when its run was planned.
TEST_F(GpuTraining, ASessionOfARunIsMadeAlsoWhereLessIsFreeThanWhenItWasPlanned) {
  for (const std::optional<std::uint64_t> memory :
       {std::optional<std::uint64_t>(), std::optional(1024 * kMiB)}) {
    have_gpus({.memory_bytes = 1024 * kMiB});
    RunOptions asked = options("cuda:0");
    asked.memory_bytes = memory;
    const PlannedRun run = plan_run(asked);
    cuda_->take_memory(0, 300 * kMiB);
    EXPECT_EQ(train(run).peak_bytes, run.prediction.peak_bytes);
    cuda_->take_memory(0, 724 * kMiB - run.smallest_budget_bytes() + 1);
    EXPECT_THROW(Session{run}, OutOfMemory) << "too little memory is free for the plan";
    expect_nothing_found();
  }
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
      expect_nothing_found();
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

// The first run measures the memory of context and libraries.
TEST_F(GpuTraining, TwoThreadsOnOneGpuAreTwoWorlds) {
  have_gpus({.seed = 1, .context_bytes = 7 * kMiB});
  std::array<std::string, 2> weights;
  std::array<std::uint64_t, 2> taken{};
  std::array<std::thread, 2> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] {
      RunOptions asked = options("cuda:0");
      asked.memory_bytes = 256 * kMiB;
      const PlannedRun run = plan_run(asked);
      taken[i] = run.target.library_bytes;
      weights[i] = train(run).weights_sha256;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_NE(weights[0], "");
  EXPECT_THAT(taken, ElementsAre(7 * kMiB, 7 * kMiB));
}

// These tests make the checks of gpu_zoo_test, which runs on a real GPU.
TEST_F(GpuTraining, TakesTheStepOfCpu) {
  for (const ModelOptions& model : {ModelOptions{.model = "lenet", .batch = 2},
                                    ModelOptions{.model = "resnet20", .input = {3, 8, 8}, .batch = 2},
                                    ModelOptions{.model = "unet", .input = {1, 4, 8, 8}, .batch = 1}}) {
    SCOPED_TRACE(model.model);
    expect_the_step_of_cpu({.model = model, .gpus = gpus_}, 1e-3);
  }
  for (const DataType storage : {DataType::kBf16, DataType::kF16}) {
    SCOPED_TRACE(to_string(storage));
    expect_the_step_of_cpu({.model = {.model = "lenet", .batch = 2}, .gpus = gpus_, .storage = storage}, 0.1);
  }
  // The fake does not round to TF32.
  expect_the_step_of_cpu({.model = {.model = "lenet", .batch = 2}, .gpus = gpus_, .tf32 = true}, 1e-3);
}

TEST_F(GpuTraining, HasOneResultAndThePredictedMemory) {
  expect_one_result_and_the_predicted_memory(
      {.model = {.model = "unet", .input = {1, 4, 8, 8}, .batch = 1}, .gpus = gpus_});
  expect_one_result_and_the_predicted_memory(
      {.model = {.model = "lenet", .batch = 2}, .gpus = gpus_, .storage = DataType::kF16});
}

TEST_F(GpuTraining, ShortageIsTold) {
  expect_out_of_memory_to_be_told({.model = {.model = "lenet", .batch = 2}, .gpus = gpus_});
}

// The life of a Session: steps, evaluation between them, values by name, and a state from which another
// session continues.
TEST_F(GpuTraining, EvaluatesAndGoesOnFromAState) {
  const PlannedRun run = plan_run(options("cuda:0"));
  const auto data = random_inputs(*run.tape, 1);
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

// Regression: a label that is no class passed unnoticed, the loss was NaN, and the parameters were updated.
TEST_F(GpuTraining, ALabelThatIsNoClassIsRefusedAndTheNextBatchIsTaken) {
  for (const bool graph : {false, true}) {
    RunOptions asked = options("cuda:0");
    asked.graph = graph;
    const PlannedRun run = plan_run(asked);
    const auto data = random_inputs(*run.tape, 1);
    const auto weights = [&](bool with_bad) {
      Session session(run, {.seed = 3});
      for (int step = 0; step < 4; ++step) {
        auto bad = data;
        const std::int32_t none = 10;
        std::memcpy(bad[1].data() + 2 * sizeof(none), &none, sizeof(none));
        if (with_bad) {
          const std::string before = session.weights_sha256();
          EXPECT_THAT(([&] {
                        session.step({std::span(bad[0]), std::span(bad[1])}, 0.1F);
                      }),
                      ::testing::ThrowsMessage<InvalidArgument>(
                          ::testing::AllOf(HasSubstr("target 10 of sample 2"), HasSubstr("0 to 9"))));
          EXPECT_EQ(session.weights_sha256(), before);
          EXPECT_EQ(session.state().step, static_cast<std::uint64_t>(step));
        }
        session.step({std::span(data[0]), std::span(data[1])}, 0.1F);
      }
      return session.weights_sha256();
    };
    EXPECT_EQ(weights(true), weights(false));
  }
}

// From some epoch on, one element of each image is infinite.
class InfiniteFrom : public Dataset {
 public:
  InfiniteFrom(std::unique_ptr<Dataset> data, std::uint64_t epoch) : data_(std::move(data)), epoch_(epoch) {}
  std::uint64_t size() const override { return data_->size(); }
  const Dims& sample_dims() const override { return data_->sample_dims(); }
  const Dims& target_dims() const override { return data_->target_dims(); }
  std::int64_t classes() const override { return data_->classes(); }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    data_->read(key, image, targets);
    if (key.epoch >= epoch_) {
      image[3] = std::numeric_limits<float>::infinity();
    }
  }

 private:
  std::unique_ptr<Dataset> data_;
  std::uint64_t epoch_;
};

// Eight samples are two steps per epoch.
TEST_F(GpuTraining, DivergenceEndsTrainingBeforeItIsSavedAndTheFirstValueIsFound) {
  for (const bool graph : {false, true}) {
    RunOptions asked = options("cuda:0");
    asked.graph = graph;
    asked.training.clip_norm = 1;
    const PlannedRun run = plan_run(asked);
    DatasetSplits data = data_for(run, "synthetic");
    data.training =
        std::make_unique<InfiniteFrom>(std::make_unique<FirstSamples>(std::move(data.training), 8), 4);
    std::uint64_t saved = 0;
    const TrainOptions training{
        .steps = 20, .save = [&](Session& session) { saved = session.steps(); }, .save_every = 1};
    try {
      Trainer(run, data, training).train({});
      ADD_FAILURE() << "it did not diverge";
    } catch (const Diverged& error) {
      EXPECT_EQ(error.step(), 9U);
    }
    EXPECT_EQ(saved, 8U);
    const std::optional<NonfiniteValue> found = find_nonfinite(run, data, training, 9);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 9U);
    EXPECT_EQ(found->value, "images");
    EXPECT_EQ(found->first, 3U);
    EXPECT_EQ(found->nonfinite, 4U);
    if (graph) {
      EXPECT_GT(cuda_->calls("cudaGraphLaunch"), 0U);
      TrainOptions inspected = training;
      inspected.session.inspect = [](const MadeValue&, const StepScalars&) {};
      EXPECT_THROW(Trainer(run, data, inspected), InvalidArgument);
    }
  }
}

// --- engines -----------------------------------------------------------------------------------------------

// A GPU on which engines are tried, with the fake of the libraries or one that computes wrongly.
class TriedGpu : public GpuTraining {
 protected:
  void have_library(const std::function<std::shared_ptr<cuda::VendorLibrary>()>& make_vendor) {
    gpus_ = cuda::make_gpu_system({.api = cuda_, .make_backends = [=] {
                                     cuda::Backends backends =
                                         make_emulated_backends(ThreadOrder::kForward, launch_on_fake_cuda());
                                     backends.vendor = make_vendor();
                                     return backends;
                                   }});
  }
  TriedGpu() {
    have_library([] { return std::make_shared<FakeVendorLibrary>(launch_on_fake_cuda()); });
    std::filesystem::remove(timings_);
  }
  ~TriedGpu() override { std::filesystem::remove(timings_); }

  RunOptions tried(bool timed) {
    RunOptions run = options("cuda:0");
    run.warn = [this](const std::string& text) { warnings_.push_back(text); };
    if (timed) {
      run.engine_timings = timings_;
    }
    return run;
  }

  // The name contains process and test, since tests run at the same time.
  const std::filesystem::path timings_ = std::filesystem::path(::testing::TempDir()) /
                                         ("vdnn_engine_timings_" + std::to_string(::getpid()) + ".json");
  std::vector<std::string> warnings_;
};

// The engine "large" does not write its output.
class WrongLibrary final : public FakeVendorLibrary {
 public:
  WrongLibrary() : FakeVendorLibrary(launch_on_fake_cuda()) {}

  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string& engine) override {
    if (engine == "large") {
      return std::make_unique<NoOp>(FakeVendorLibrary::convolution(question, engine)->workspace_bytes());
    }
    return FakeVendorLibrary::convolution(question, engine);
  }

 private:
  class NoOp final : public cuda::VendorOp {
   public:
    explicit NoOp(std::uint64_t workspace_bytes) : workspace_bytes_(workspace_bytes) {}
    std::uint64_t workspace_bytes() const override { return workspace_bytes_; }
    void run(const cuda::VendorOperands&, void*) const override {}

   private:
    std::uint64_t workspace_bytes_;
  };
};

// No engine may be tried on this library.
class Untouched final : public cuda::VendorLibrary {
 public:
  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string&) override {
    ADD_FAILURE() << "tried again: " << to_string(question);
    throw DeviceError("unexpected");
  }
  std::unique_ptr<cuda::VendorOp> matrix_product(const cuda::MatrixProduct&) override { return nullptr; }
  std::unique_ptr<cuda::VendorOp> pooling(const cuda::PoolingProblem&) override { return nullptr; }
  std::unique_ptr<cuda::VendorOp> lrn(const cuda::LrnProblem&) override { return nullptr; }
};

std::set<std::string> convolution_algorithms(const PlannedRun& run) {
  std::set<std::string> names;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    const Op& op = run.tape->op(id);
    if (std::holds_alternative<ConvolutionSpec>(op.spec)) {
      names.insert(op.algorithms[run.plan.algorithms[id]].name);
    }
  }
  return names;
}

TEST_F(TriedGpu, TrainsTheSameWeightsAfterTrialsWithinTheSamePeak) {
  const PlannedRun run = plan_run(tried(false));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(run.catalog->algorithms_source(), "fake engines, tf32 convolutions");
  const TrainingResult result = train(run);
  EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
  gpus_ = make_fake_gpus(cuda_);
  EXPECT_EQ(result.weights_sha256, train(plan_run(options("cuda:0"))).weights_sha256);
}

TEST_F(TriedGpu, WhatComputesWronglyIsRefusedAndTheNextTaken) {
  EXPECT_THAT(convolution_algorithms(plan_run(tried(false))), ElementsAre("large"));
  have_library([] { return std::make_shared<WrongLibrary>(); });
  EXPECT_THAT(convolution_algorithms(plan_run(tried(false))), ElementsAre("small"));
  EXPECT_THAT(warnings_, ::testing::Contains(HasSubstr("engine large is not used for fp32 convolution")));
}

// The second run finds all results in the file, including the wrong engines.
TEST_F(TriedGpu, TimesAreKeptInTheFileThatIsGiven) {
  have_library([] { return std::make_shared<WrongLibrary>(); });
  const PlannedRun first = plan_run(tried(true));
  EXPECT_EQ(first.catalog->algorithms_source(), "fake engines, timed, tf32 convolutions");
  ASSERT_TRUE(std::filesystem::exists(timings_));
  have_library([] { return std::make_shared<Untouched>(); });
  warnings_.clear();
  EXPECT_THAT(convolution_algorithms(plan_run(tried(true))), ElementsAre("small"));
  EXPECT_THAT(warnings_, ::testing::Contains(HasSubstr("engine large is not used")));
}

// --- timed by default --------------------------------------------------------------------------------------

using Names = std::map<std::string, std::string>;

Names algorithms_by_op(const PlannedRun& run) {
  Names names;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    if (const Op& op = run.tape->op(id); op.recorded()) {
      names.emplace(op.name, op.algorithms[run.plan.algorithms[id]].name);
    }
  }
  return names;
}

class TimedByDefault : public TriedGpu {
 protected:
  // The folder of the cache does not exist yet.
  RunOptions with_cache(std::optional<Policy> policy) {
    RunOptions run = tried(false);
    run.policy = policy;
    run.engine_cache = cache_;
    return run;
  }
  TimedByDefault() { std::filesystem::remove_all(cache_.parent_path()); }
  ~TimedByDefault() override { std::filesystem::remove_all(cache_.parent_path()); }

  const std::filesystem::path cache_ = std::filesystem::path(::testing::TempDir()) /
                                       ("vdnn_cache_" + std::to_string(::getpid())) / "times.json";
};

// Regression: without a named file no engine was timed, and plans followed the library's order.
TEST_F(TimedByDefault, ARepeatOfWhatChoosesItsAlgorithmsHasTheSameWithoutTrials) {
  const PlannedRun first = plan_run(with_cache(Policy::kOptimal));
  EXPECT_TRUE(first.algorithms_source().ends_with(", timed"));
  ASSERT_TRUE(std::filesystem::exists(cache_));
  EXPECT_GT(first.trials->engines, 0U);
  EXPECT_GT(first.trials->convolutions, 0U);
  EXPECT_EQ(first.trials->untimed, 0U);
  have_library([] { return std::make_shared<Untouched>(); });
  const PlannedRun again = plan_run(with_cache(Policy::kOptimal));
  EXPECT_EQ(algorithms_by_op(again), algorithms_by_op(first));
  EXPECT_EQ(again.trials->engines, 0U);
  const PlannedRun dynamic = plan_run(with_cache(Policy::kDynamic));
  EXPECT_TRUE(dynamic.algorithms_source().ends_with(", timed"));
  EXPECT_EQ(dynamic.trials->engines, 0U);
}

TEST_F(TimedByDefault, StaticPoliciesKeepTheLibrarysFirstChoice) {
  for (const Policy policy : {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll}) {
    const PlannedRun run = plan_run(with_cache(policy));
    EXPECT_FALSE(run.algorithms_source().ends_with(", timed"));
    EXPECT_THAT(convolution_algorithms(run), ElementsAre("large"));
  }
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

TEST_F(TimedByDefault, NothingIsTimedInNoTimeNorByRanksNorBesideAProfile) {
  RunOptions no_time = with_cache(Policy::kOptimal);
  no_time.engine_trial_seconds = 0;
  RunOptions ranks = with_cache(Policy::kOptimal);
  ranks.training.ranks = 2;
  std::filesystem::create_directories(cache_.parent_path());
  RunOptions profiled = with_cache(Policy::kOptimal);
  profiled.profile = cache_.parent_path() / "profile.json";
  std::ofstream(*profiled.profile) << to_text(expected_costs(plan_run(with_cache(Policy::kOffloadNone))));
  for (const RunOptions& run : {no_time, ranks, profiled}) {
    EXPECT_FALSE(plan_run(run).algorithms_source().ends_with(", timed"));
  }
  EXPECT_FALSE(std::filesystem::exists(cache_));
  RunOptions contradiction = tried(true);
  contradiction.engine_trial_seconds = 0;
  EXPECT_THROW(plan_run(contradiction), InvalidArgument);
  for (const double seconds : {-1.0, std::numeric_limits<double>::infinity()}) {
    no_time.engine_trial_seconds = seconds;
    EXPECT_THROW(plan_run(no_time), InvalidArgument);
  }
}

// `auto` chooses `none` if that fits, and then times no engines.
TEST_F(TimedByDefault, AutoTimesOnlyForWhatItSettlesOn) {
  RunOptions run = with_cache(std::nullopt);
  const PlannedRun none = plan_run(run);
  EXPECT_EQ(none.plan.options.policy, Policy::kOffloadNone);
  EXPECT_FALSE(std::filesystem::exists(cache_));
  run.memory_bytes = none.smallest_budget_bytes() - 2 * kMiB;
  const PlannedRun optimal = plan_run(run);
  EXPECT_EQ(optimal.plan.options.policy, Policy::kOptimal);
  EXPECT_TRUE(optimal.algorithms_source().ends_with(", timed"));
  EXPECT_TRUE(std::filesystem::exists(cache_));
}

// The times of engines are scripted: a convolution's kernel advances the clock of the GPUs by its engine's
// time.
class ScriptedLibrary final : public FakeVendorLibrary {
 public:
  using Seconds = std::map<std::string, double>;  // by engine
  ScriptedLibrary(Seconds seconds, std::shared_ptr<double> clock)
      : FakeVendorLibrary(launch_on_fake_cuda()), seconds_(std::move(seconds)), clock_(std::move(clock)) {}

  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string& engine) override {
    return std::make_unique<ScriptedOp>(FakeVendorLibrary::convolution(question, engine), seconds_.at(engine),
                                        clock_);
  }

 private:
  class ScriptedOp final : public cuda::VendorOp {
   public:
    ScriptedOp(std::unique_ptr<cuda::VendorOp> op, double seconds, std::shared_ptr<double> clock)
        : op_(std::move(op)), seconds_(seconds), clock_(std::move(clock)) {}
    std::uint64_t workspace_bytes() const override { return op_->workspace_bytes(); }
    void run(const cuda::VendorOperands& operands, void* stream) const override {
      op_->run(operands, stream);
      launch_on_fake_cuda()(stream, [clock = clock_, seconds = seconds_] { *clock += seconds; });
    }

   private:
    std::unique_ptr<cuda::VendorOp> op_;
    double seconds_;
    std::shared_ptr<double> clock_;
  };

  Seconds seconds_;
  std::shared_ptr<double> clock_;
};

const ScriptedLibrary::Seconds kSmallIsFaster{{"large", 3e-3}, {"small", 1e-3}};
const ScriptedLibrary::Seconds kLargeIsFaster{{"large", 1e-3}, {"small", 3e-3}};

class ScriptedTimes : public TimedByDefault {
 protected:
  ScriptedTimes() { take(kSmallIsFaster); }
  void take(const ScriptedLibrary::Seconds& seconds) {
    cuda_ = std::make_shared<FakeCuda>(FakeCudaOptions{.clock = clock_});
    have_library([=, this] { return std::make_shared<ScriptedLibrary>(seconds, clock_); });
  }
  void forget_times() { std::filesystem::remove_all(cache_.parent_path()); }
  const std::shared_ptr<double> clock_ = std::make_shared<double>(0);
};

TEST_F(ScriptedTimes, TheFastestEngineIsTaken) {
  EXPECT_THAT(convolution_algorithms(plan_run(with_cache(Policy::kOptimal))), ElementsAre("small"));
  forget_times();
  take(kLargeIsFaster);
  EXPECT_THAT(convolution_algorithms(plan_run(with_cache(Policy::kOptimal))), ElementsAre("large"));
}

// `none` uses the library's first engine, without timing it.
TEST_F(ScriptedTimes, KeptAlgorithmsAreThoseOfNoneAndNothingIsTimed) {
  const PlannedRun none = plan_run(with_cache(Policy::kOffloadNone));
  RunOptions options = with_cache(Policy::kOptimal);
  const PlannedRun timed = plan_run(options);
  std::vector<std::string> others;
  for (const auto& [op, algorithm] : algorithms_by_op(timed)) {
    if (algorithm != algorithms_by_op(none).at(op)) {
      others.push_back(op);
    }
  }
  EXPECT_THAT(others, Not(IsEmpty()));
  EXPECT_THAT(ops_with_other_algorithms(timed), ::testing::UnorderedElementsAreArray(others));
  forget_times();
  options.keep_algorithms = true;
  const PlannedRun kept = plan_run(options);
  EXPECT_EQ(algorithms_by_op(kept), algorithms_by_op(none));
  EXPECT_TRUE(ops_with_other_algorithms(kept).empty());
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

// A resumed run has the algorithms of its checkpoint, under any policy and with any new times.
TEST_F(ScriptedTimes, AResumedRunHasTheSameAlgorithms) {
  const std::array from{Policy::kOptimal, Policy::kOffloadAll};
  const std::array to{std::optional(Policy::kOptimal), std::optional(Policy::kOffloadAll),
                      std::optional<Policy>()};
  for (const Policy then : from) {
    const bool chooses = then == Policy::kOptimal;
    take(kSmallIsFaster);
    const PlannedRun run = plan_run(with_cache(then));
    const Names recorded = algorithms_by_op(run);
    EXPECT_THAT(convolution_algorithms(run), ElementsAre(chooses ? "small" : "large"));
    forget_times();
    take(chooses ? kLargeIsFaster : kSmallIsFaster);
    for (const std::optional<Policy>& now : to) {
      SCOPED_TRACE(to_string(then) + " to " + (now ? to_string(*now) : "auto"));
      RunOptions resumed = with_cache(now);
      resumed.recorded_algorithms = recorded;
      EXPECT_EQ(algorithms_by_op(plan_run(resumed)), recorded);
    }
    forget_times();
  }
}

// Regression: the schedule was refused, since the tape for which it was made had only the algorithms that the
// times had selected, in the order of these times.
TEST_F(ScriptedTimes, AScheduleIsReplayedWithoutTheTimesThatItWasMadeWith) {
  const PlannedRun run = plan_run(with_cache(Policy::kOptimal));
  std::stringstream file;
  write_schedule(file, *run.tape, run.schedule, "{}");
  const auto replayed = [&](const RunOptions& options) {
    std::istringstream in(file.str());
    return algorithms_by_op(
        plan_run_with_schedule(options, [&](const Tape& tape) { return read_schedule(in, tape); }));
  };
  const Names names = algorithms_by_op(run);
  EXPECT_EQ(replayed(with_cache(Policy::kOptimal)), names);
  forget_times();
  take(kLargeIsFaster);
  EXPECT_EQ(replayed(with_cache(Policy::kOptimal)), names);
  RunOptions untimed = with_cache(Policy::kOptimal);
  untimed.engine_trial_seconds = 0;
  EXPECT_EQ(replayed(untimed), names);
}

// The learned costs of a run can serve as a --profile, with which no engine is timed. Regression: they were
// refused, since their setting was `timed`.
TEST_F(ScriptedTimes, CostsOfATimedRunAreAProfileOfAnUntimedOne) {
  const PlannedRun run = plan_run(with_cache(Policy::kOptimal));
  EXPECT_EQ(run.algorithms_source(), "fake engines, tf32 convolutions, timed");
  RunOptions profiled = with_cache(Policy::kOptimal);
  profiled.profile = cache_.parent_path() / "learned.json";
  std::ofstream(*profiled.profile) << to_text(expected_costs(run));
  const PlannedRun again = plan_run(profiled);
  EXPECT_EQ(algorithms_by_op(again), algorithms_by_op(run));
  EXPECT_EQ(again.prediction.step_seconds, run.prediction.step_seconds);
}

// Auto lowers the network twice here. Regression: each lowering had its own time limit for trials and its own
// report of them.
TEST_F(ScriptedTimes, AutoCountsAllItsTrials) {
  RunOptions options = with_cache(std::nullopt);
  const PlannedRun none = plan_run(options);
  options.memory_bytes = none.smallest_budget_bytes() - 2 * kMiB;
  const PlannedRun optimal = plan_run(options);
  ASSERT_EQ(optimal.plan.options.policy, Policy::kOptimal);
  EXPECT_EQ(optimal.trials->engines, 2 * none.trials->engines);
}

// predict_scaling() compares the ranks with a single device. Regression: the plan of the single device timed
// engines without a report, while those of the ranks were untimed.
TEST_F(ScriptedTimes, NoRunThatOthersAreComparedWithIsTimed) {
  RunOptions ranks = with_cache(Policy::kOptimal);
  ranks.training.ranks = 2;
  const PlannedRun run = plan_run(ranks);
  const Scaling scaling = predict_scaling(run);
  EXPECT_FALSE(std::filesystem::exists(cache_));
  EXPECT_GT(scaling.efficiency, 0);
  EXPECT_LE(scaling.efficiency, 1);
}

// --- TF32 --------------------------------------------------------------------------------------------------

TEST_F(GpuTraining, GpusBeforeAmpereKeepFp32AndRefuseTf32) {
  have_gpus({.compute_capability = 75});
  RunOptions asked = options("cuda:0");
  const PlannedRun run = plan_run(asked);
  EXPECT_EQ(run.precisions, ProductPrecisions());
  EXPECT_EQ(run.algorithms_source(), "fake engines");
  asked.tf32 = false;
  EXPECT_EQ(plan_run(asked).precisions, ProductPrecisions());
  asked.tf32 = true;
  EXPECT_THAT([&] { plan_run(asked); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
                  HasSubstr("tf32 = true"), HasSubstr("cuda:0"), HasSubstr("7.5"), HasSubstr("8.0"))));
  have_gpus({.compute_capability = 80});
  asked.gpus = gpus_;
  EXPECT_EQ(plan_run(asked).precisions.matrix_products, ProductPrecision::kTf32);
}

TEST_F(TriedGpu, ADamagedFileIsPassedOverWithAWarningAndRebuilt) {
  std::ofstream(timings_) << "{\"schema\": 1, ";
  plan_run(tried(true));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is ignored and will be replaced")));
  warnings_.clear();
  plan_run(tried(true));
  EXPECT_THAT(warnings_, IsEmpty());
}

// Libraries reduce the free memory, and trials use the rest.
TEST_F(TriedGpu, TrialsDoWithWhatIsFree) {
  have_library([this] {
    cuda_->take_memory(0, 64 * kMiB);
    return std::make_shared<FakeVendorLibrary>(launch_on_fake_cuda());
  });
  RunOptions run = tried(false);
  run.memory_bytes = FakeCudaOptions().memory_bytes;
  plan_run(run);
  EXPECT_THAT(warnings_, IsEmpty());
}

// Regression: a full card was reported as an invalid argument, which ended the planning.
TEST_F(TriedGpu, WhereNothingIsFreeEnginesAreNotTried) {
  int made = 0;
  have_library([this, &made] {
    if (++made == 2) {  // after the library's memory has been measured
      cuda_->take_memory(0, FakeCudaOptions().memory_bytes);
    }
    return std::make_shared<FakeVendorLibrary>(launch_on_fake_cuda());
  });
  RunOptions run = tried(false);
  run.memory_bytes = FakeCudaOptions().memory_bytes;
  plan_run(run);
  EXPECT_THAT(warnings_, ::testing::Contains(HasSubstr("engines are not tried")));
}

// A trace times the last four steps. Regression: untimed steps were reported as steps without a stall.
TEST_F(GpuTraining, StallsAreToldOfStepsThatAreTimed) {
  const PlannedRun run = plan_run(options("cuda:0"));
  EXPECT_FALSE(train(run).stall_seconds);
  std::vector<bool> timed;
  const auto note = [&](const StepReport& step) { timed.push_back(step.stall_fraction.has_value()); };
  EXPECT_TRUE(train(run, {.steps = 6, .trace = true}, note).stall_seconds);
  EXPECT_EQ(timed, (std::vector<bool>{false, false, true, true, true, true}));
}

TEST_F(GpuTraining, Tf32IsAChoiceWithANameOfItsOwn) {
  RunOptions asked = options("cuda:0");
  asked.tf32 = true;
  const PlannedRun run = plan_run(asked);
  EXPECT_EQ(run.catalog->algorithms_source(), "fake engines, tf32");
  std::set<std::string> products;
  for (const Op& op : run.tape->ops()) {
    if (std::holds_alternative<FullyConnectedSpec>(op.spec)) {
      products.insert(op.algorithms.at(0).name);
    }
  }
  EXPECT_THAT(products, ElementsAre("cublaslt in tf32"));
}

TEST_F(GpuTraining, SaysWhoseAlgorithmsTheyAre) {
  RunOptions run = options("cuda:0");
  EXPECT_EQ(plan_run(run).catalog->algorithms_source(), "fake engines, tf32 convolutions");
  run.tf32 = false;
  EXPECT_EQ(plan_run(run).catalog->algorithms_source(), "fake engines");
}

// --- graphs ------------------------------------------------------------------------------------------------

// All layers that depend on numbers which change from step to step.
Network dropping() {
  NetworkBuilder network("dropping", {4, 1, 12, 12});
  Tensor maps = network.convolution("conv1", network.input(),
                                    {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  maps = network.dropout("drop1", network.relu("relu1", maps), 0.3F);
  maps = network.convolution("conv2", maps,
                             {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  maps = network.fully_connected("fc1", network.relu("relu2", maps), {.outputs = 16});
  maps = network.dropout("drop2", maps, 0.5F);
  network.softmax_cross_entropy("loss", network.fully_connected("fc2", maps, {.outputs = 10}));
  return std::move(network).build();
}

class GpuGraphs : public GpuTraining {
 protected:
  static constexpr std::uint64_t kSteps = 10;

  TrainingResult train(const TrainingOptions& training, Policy policy, bool graph) {
    RunOptions asked = options("cuda:0", policy);
    asked.training = training;
    asked.graph = graph;
    const PlannedRun run = plan_run(dropping(), asked);
    DatasetSplits data = data_for(run, "synthetic");
    data.test.reset();
    TrainingResult result = Trainer(run, data,
                                    {.learning_rate = 0.02F,
                                     .learning_rate_schedule = "step:3:0.5,warmup:2",
                                     .steps = kSteps,
                                     .session = {.seed = 7}})
                                .train({});
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    return result;
  }
  void expect_same_bits(const TrainingOptions& training, Policy policy, std::uint64_t seed) {
    SCOPED_TRACE(to_string(policy) + ", seed " + std::to_string(seed));
    have_gpus({.seed = seed});
    const TrainingResult eager = train(training, policy, false);
    EXPECT_EQ(cuda_->calls("cudaGraphLaunch"), 0U);
    const TrainingResult graph = train(training, policy, true);
    EXPECT_EQ(cuda_->calls("cudaGraphLaunch"), kSteps - 1);
    // One graph for each of three batches and each of two places for results.
    EXPECT_EQ(cuda_->calls("cudaStreamBeginCapture"), 6U);
    EXPECT_EQ(graph.weights_sha256, eager.weights_sha256);
    EXPECT_EQ(graph.loss, eager.loss);
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
    EXPECT_THAT(cuda_->leaks(), IsEmpty());
    EXPECT_THAT(cuda_->findings(), IsEmpty());
  }
};

TEST_F(GpuGraphs, GiveTheBitsOfTheSameStepsOneByOne) {
  const TrainingOptions sgd{.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}};
  const TrainingOptions adam{.optimizer = AdamSpec{.weight_decay = 5e-4F}};
  const TrainingOptions adamw{.optimizer = AdamSpec{.weight_decay = 0.01F, .decoupled = true},
                              .clip_norm = 0.5F};
  std::uint64_t seed = 0;
  for (const TrainingOptions& training : {sgd, adam, adamw}) {
    for (const Policy policy : kPolicies) {
      expect_same_bits(training, policy, seed++);
    }
  }
}

// The first step without updates and the first one with updates run without a graph. Regression: kernels of
// updates were loaded during a capture.
TEST_F(GpuGraphs, EachKindOfStepRunsOnceAsItIs) {
  have_gpus({.seed = 1});
  const TrainingOptions accumulating{.micro_steps = 2};
  const TrainingResult eager = train(accumulating, Policy::kOffloadAll, false);
  const TrainingResult graph = train(accumulating, Policy::kOffloadAll, true);
  EXPECT_EQ(graph.weights_sha256, eager.weights_sha256);
  EXPECT_EQ(cuda_->calls("cudaGraphLaunch"), 2 * kSteps - 2);
}

TEST_F(GpuGraphs, AreCapturedAnewAfterEvaluation) {
  have_gpus({.seed = 1});
  const auto run_with = [this](bool graph) {
    RunOptions asked = options("cuda:0");
    asked.graph = graph;
    Session session(plan_run(dropping(), asked), {.seed = 3});
    std::vector<std::vector<std::byte>> inputs;
    for (const ValueId input : session.run().tape->inputs()) {
      inputs.emplace_back(session.run().tape->value(input).bytes);
    }
    double loss = 0;
    for (int round = 0; round < 2; ++round) {
      for (int step = 0; step < 5; ++step) {
        loss = session.step({std::span(inputs[0]), std::span(inputs[1])}, 0.1F).loss;
      }
      session.evaluate({std::span(inputs[0]), std::span(inputs[1])});
    }
    return std::pair(loss, session.weights_sha256());
  };
  const auto eager = run_with(false);
  EXPECT_EQ(run_with(true), eager);
  // Two graphs (one place for batches, two for results) in each of two rounds. The first step of each round
  // is no graph.
  EXPECT_EQ(cuda_->calls("cudaStreamBeginCapture"), 4U);
  EXPECT_EQ(cuda_->calls("cudaGraphLaunch"), 8U);
}

// Measured steps run without graphs. Steps of the new plan are captured again, in its predicted memory. The
// bits are those of a run without a new plan.
TEST_F(GpuGraphs, AreCapturedAnewForANewPlan) {
  have_gpus({.seed = 1});
  const auto train_with = [this](const std::optional<ReplanRule>& replan, std::vector<Replanning>& told) {
    RunOptions asked = options("cuda:0", Policy::kOffloadAll);
    asked.graph = true;
    const PlannedRun run = plan_run(dropping(), asked);
    DatasetSplits data = data_for(run, "synthetic");
    data.test.reset();
    const TrainingResult result =
        Trainer(run, data,
                {.learning_rate = 0.02F,
                 .steps = 16,
                 .session = {.seed = 7},
                 .replan = replan,
                 .replanned = [&](const Replanning& replanning) { told.push_back(replanning); }})
            .train({});
    EXPECT_EQ(result.peak_bytes, result.predicted_peak_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    return result.weights_sha256;
  };
  std::vector<Replanning> told;
  const std::string usual = train_with({}, told);
  EXPECT_THAT(told, IsEmpty());
  const std::uint64_t captures = cuda_->calls("cudaStreamBeginCapture");
  const std::uint64_t launches = cuda_->calls("cudaGraphLaunch");
  EXPECT_EQ(train_with(ReplanRule{.after_steps = 7, .options = {.policy = Policy::kOffloadNone}}, told),
            usual);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].report.outcome, ReplanReport::Outcome::kReplanned) << told[0].report.reason;
  EXPECT_EQ(told[0].committed_bytes_after, told[0].report.predicted_peak_bytes);
  // None of the first seven steps is a graph: the first step never is, and six are measured. Of the other
  // nine, all except the first are graphs.
  EXPECT_EQ(cuda_->calls("cudaGraphLaunch") - launches, 8U);
  EXPECT_EQ(cuda_->calls("cudaStreamBeginCapture") - captures, 6U);
}

// In each round, one call of captured steps or of a replayed step fails. The session reports the error,
// nothing leaks, and training from the earlier state ends with the usual weights.
TEST_F(GpuGraphs, CanBeMendedWhateverCallOfTheirsFails) {
  constexpr std::uint64_t kStride = 13;
  RunOptions asked = options("cuda:0");
  asked.graph = true;
  const auto steps = [](Session& session, int count) {
    const std::vector<std::byte> images(session.run().tape->value(session.run().tape->inputs()[0]).bytes);
    const std::vector<std::byte> targets(session.run().tape->value(session.run().tape->inputs()[1]).bytes);
    for (int step = 0; step < count; ++step) {
      session.step({std::span(images), std::span(targets)}, 0.1F);
    }
  };
  std::string usual;
  std::uint64_t failed = 0;
  for (bool all = false; !all; ++failed) {
    SCOPED_TRACE("call " + std::to_string(1 + failed * kStride));
    have_gpus({.seed = failed});
    asked.gpus = gpus_;
    Session session(plan_run(dropping(), asked), {.seed = 3});
    const TrainingState state = session.state();
    steps(session, 1);
    cuda_->fail_call(1 + failed * kStride, CudaStatus::kInvalidValue);
    try {
      steps(session, 3);
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr(cuda_->failed_call()));
    }
    all = cuda_->failed_call().empty();
    cuda_->fail_call(0, CudaStatus::kSuccess);
    session.restore(state);
    steps(session, 4);
    const std::string weights = session.weights_sha256();
    usual = usual.empty() ? weights : usual;
    EXPECT_EQ(weights, usual);
    session.finish();
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
  }
  EXPECT_GT(failed, 10U);
}

TEST_F(GpuGraphs, WhileTracingStepsRunOneByOne) {
  RunOptions asked = options("cuda:0");
  asked.graph = true;
  const PlannedRun run = plan_run(dropping(), asked);
  const DatasetSplits data = data_for(run, "synthetic");
  const TrainingResult result = Trainer(run, data, {.steps = 4, .trace = true}).train({});
  EXPECT_NE(std::ranges::find(result.trace, "conv1.forward", &TraceEvent::name), result.trace.end());
  EXPECT_EQ(std::ranges::find(result.trace, "graph", &TraceEvent::name), result.trace.end());
}

TEST_F(GpuGraphs, AreRefusedWhereNothingCanCaptureThem) {
  RunOptions asked = options("cpu");
  asked.graph = true;
  const PlannedRun run = plan_run(asked);
  EXPECT_THAT(([&] { Session session(run); }), ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
                                                   HasSubstr("cpu"), HasSubstr("cannot capture graphs"))));
}

// --- mixed precision ---------------------------------------------------------------------------------------

// A network of all layers for which a narrow type makes a difference.
Network mixed() {
  NetworkBuilder network("mixed", {4, 2, 6, 6});
  Tensor x = network.convolution(
      "conv", network.input(),
      {.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .dilation = {}});
  x = network.relu("relu", network.batch_normalization("batch_norm", x));
  const Tensor y = network.sigmoid("sigmoid", network.group_normalization("group_norm", x, {.groups = 2}));
  x = network.concatenation("joined", {network.add("sum", x, y), y});
  x = network.dropout("drop", network.upsampling("up", x, {.factors = {2, 1}}), 0.25F);
  network.softmax_cross_entropy("loss", network.fully_connected("classes", x, {.outputs = 5}));
  return std::move(network).build();
}

class MixedPrecision : public GpuTraining {
 protected:
  // A loss scale so large that fp16 gradients are infinite until the scale has been halved several times.
  static constexpr float kAbsurd = 0x1p40F;

  PlannedRun planned(DataType storage, bool graph, float initial = kAbsurd,
                     Policy policy = Policy::kOffloadAll) const {
    RunOptions asked = options("cuda:0", policy);
    asked.graph = graph;
    asked.training = {.optimizer = AdamSpec{.weight_decay = 0.01F},
                      .precision = {.storage = storage, .fp32_layers = {}},
                      .loss_scaling = {.initial = initial, .growth_interval = 1000}};
    return plan_run(mixed(), asked);
  }
  StepMetrics step(Session& session) const {
    return session.step({std::as_bytes(std::span(images_)), std::as_bytes(std::span(targets_))}, 0.01F);
  }

  std::vector<float> images_ = [] {
    std::vector<float> images(std::size_t{4} * 2 * 6 * 6);
    for (std::size_t i = 0; i < images.size(); ++i) {
      images[i] = std::sin(static_cast<float>(i));
    }
    return images;
  }();
  std::vector<std::int32_t> targets_{0, 1, 2, 3};
};

// Expects unchanged parameters, except for running statistics, which follow each batch as in PyTorch.
void expect_unmoved(const TrainingState& before, const TrainingState& after) {
  for (std::size_t i = 0; i < before.parameters.size(); ++i) {
    if (before.parameters[i].name.find("running") == std::string::npos) {
      EXPECT_EQ(before.parameters[i].values, after.parameters[i].values) << before.parameters[i].name;
    }
  }
  ASSERT_FALSE(before.optimizer.empty());
  for (std::size_t i = 0; i < before.optimizer.size(); ++i) {
    EXPECT_EQ(before.optimizer[i].values, after.optimizer[i].values) << before.optimizer[i].name;
  }
}

TEST_F(MixedPrecision, AnOverflowSkipsTheStepToTheBitUntilTheScaleHasRecovered) {
  for (const bool graph : {false, true}) {
    SCOPED_TRACE(graph ? "as graphs" : "one by one");
    have_gpus({.seed = 3});
    Session session(planned(DataType::kF16, graph), {.seed = 2});
    std::uint64_t skipped = 0;
    StepMetrics metrics;
    for (;;) {
      const TrainingState before = session.state();
      metrics = step(session);
      ASSERT_TRUE(metrics.loss_scaling);
      EXPECT_EQ(metrics.loss_scaling->scale, std::ldexp(kAbsurd, -static_cast<int>(skipped)));
      if (!metrics.loss_scaling->skipped) {
        break;
      }
      ++skipped;
      ASSERT_LT(skipped, 40U);
      expect_unmoved(before, session.state());
      EXPECT_EQ(session.state().loss_scale->skipped_steps, static_cast<float>(skipped));
    }
    EXPECT_GT(skipped, 5U);
    EXPECT_TRUE(std::isfinite(*metrics.gradient_norm));
    EXPECT_EQ(cuda_->calls("cudaGraphLaunch") > 0, graph);
    const double first = metrics.loss;
    for (int i = 0; i < 30; ++i) {
      metrics = step(session);
    }
    EXPECT_LT(metrics.loss, first);
  }
}

// As without graphs, skipped steps do not count in the number of the step; a graph's kernels read that number
// from memory.
TEST_F(MixedPrecision, GraphsAndEveryPolicyHaveTheBitsOfStepsOneByOne) {
  for (const DataType storage : {DataType::kF16, DataType::kBf16}) {
    std::set<std::string> hashes;
    std::uint64_t seed = 0;
    for (const Policy policy : kPolicies) {
      for (const bool graph : {false, true}) {
        SCOPED_TRACE(to_string(policy) + (graph ? ", as graphs" : ", one by one"));
        have_gpus({.seed = seed++});
        const PlannedRun run = planned(storage, graph, 0x1p24F, policy);
        const TrainingResult result = train(run, {.steps = 16});
        EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
        EXPECT_EQ(result.loss_scaling.has_value(), storage == DataType::kF16);
        EXPECT_TRUE(!result.loss_scaling || result.loss_scaling->skipped_steps > 0);
        hashes.insert(result.weights_sha256);
        expect_nothing_found();
      }
    }
    EXPECT_EQ(hashes.size(), 1U) << to_string(storage);
  }
}

}  // namespace
}  // namespace vdnn::testing
