#include "vdnn/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/train/training_runs.h"
#include "vdnn/error.h"

namespace vdnn::trainer_test {
namespace {

using ::testing::HasSubstr;

RunOptions lenet(std::int64_t batch, Policy policy = Policy::kOffloadNone) {
  return {.model = {.model = "lenet", .input = {}, .classes = 0, .batch = batch},
          .device = "cpu",
          .memory_bytes = std::uint64_t{1} << 30,
          .host_memory_bytes = std::uint64_t{1} << 30,
          .threads = 1,
          .policy = policy,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F}}};
}

// Samples of 28 x 28 whose class is the position of a bright stripe, which a few steps learn perfectly. The
// last `wrong` samples have a wrong label.
class Stripes : public Dataset {
 public:
  explicit Stripes(std::uint64_t samples, std::uint64_t wrong = 0) : samples_(samples), wrong_(wrong) {}

  std::uint64_t size() const override { return samples_; }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return 10; }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    const auto stripe = static_cast<std::ptrdiff_t>(key.index % 10);
    std::ranges::fill(image, 0.0F);
    std::fill_n(image.begin() + stripe * 2 * 28, 2 * 28, 1.0F);
    const std::ptrdiff_t shift = key.index + wrong_ >= samples_ ? 1 : 0;
    targets[0] = static_cast<std::int32_t>((stripe + shift) % 10);
  }

 private:
  std::uint64_t samples_;
  std::uint64_t wrong_;
  Dims dims_{1, 28, 28};
  Dims target_dims_;
};

DatasetSplits stripes(std::uint64_t training, std::uint64_t test, std::uint64_t wrong) {
  return {.training = std::make_unique<Stripes>(training), .test = std::make_unique<Stripes>(test, wrong)};
}

TrainingResult train(const RunOptions& options, const TrainOptions& train_options) {
  const PlannedRun run = plan_run(options);
  const DatasetSplits data = testing::data_for(run, "synthetic");
  return Trainer(run, data, train_options).train({});
}

TEST(Trainer, LearnsSyntheticData) {
  const PlannedRun run = plan_run(lenet(32));
  const DatasetSplits data = testing::data_for(run, "synthetic");
  std::vector<double> losses;
  Trainer trainer(run, data, {.learning_rate = 0.01F, .steps = 60});
  const TrainingResult result =
      trainer.train([&](const StepReport& report) { losses.push_back(report.loss); });
  ASSERT_EQ(losses.size(), 60U);
  EXPECT_NEAR(losses.front(), std::log(10.0), 0.3)
      << "logits start small, so all classes are about equally likely";
  EXPECT_LT(std::accumulate(losses.end() - 5, losses.end(), 0.0) / 5, 0.5 * losses.front());
  EXPECT_EQ(result.loss, losses.back());
}

TEST(Trainer, ReportsEveryStepOnceAndInOrder) {
  const PlannedRun run = plan_run(lenet(8));
  const DatasetSplits data = stripes(20, 10, 0);  // three steps per epoch
  std::vector<StepReport> reports;
  Trainer trainer(run, data, {.epochs = 2});
  const TrainingResult result = trainer.train([&](const StepReport& report) { reports.push_back(report); });
  EXPECT_EQ(result.steps, 6U);
  ASSERT_EQ(reports.size(), 6U);
  for (std::uint64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(reports[step].step, step + 1);
    EXPECT_EQ(reports[step].steps, 6U);
    EXPECT_EQ(reports[step].steps_per_epoch, 3U);
    EXPECT_EQ(reports[step].memory_bytes, run.prediction.peak_bytes);
    EXPECT_GE(reports[step].stall_fraction.value(), 0);
  }
  EXPECT_GE(result.stall_seconds.value(), 0);
  EXPECT_GT(result.step_seconds, 0);
  EXPECT_GT(result.images_per_second, 0);
}

// --- evaluation --------------------------------------------------------------------------------------------

class TrainerPolicies : public ::testing::TestWithParam<Policy> {};

INSTANTIATE_TEST_SUITE_P(All, TrainerPolicies, ::testing::ValuesIn(testing::kPolicies),
                         [](const auto& test) { return to_string(test.param); });

// With 37 samples in batches of 16, the last batch is short. All samples except the last three, which have
// wrong labels, are classified correctly. So the accuracy would show a padded place that counts or a sample
// that does not.
TEST_P(TrainerPolicies, EvaluateEverySampleOnceInTheMemoryOfTraining) {
  RunOptions options = lenet(16, GetParam());
  options.memory_bytes = plan_run(options).smallest_budget_bytes();
  const PlannedRun run = plan_run(options);
  const DatasetSplits data = stripes(120, 37, 3);
  const TrainingResult result = Trainer(run, data, {.learning_rate = 0.02F, .epochs = 6}).train({});
  ASSERT_TRUE(result.test_accuracy);
  EXPECT_DOUBLE_EQ(*result.test_accuracy, 34.0 / 37);
  EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
  EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
  EXPECT_EQ(result.system_allocations_after_first_step, 0U);
}

// Five samples in a batch of 8 have the same metrics as five in a batch of 5.
TEST_P(TrainerPolicies, CountTheSamplesOfAShortBatchOfEvaluationOnly) {
  const auto metrics = [](std::int64_t batch_size) {
    Session session(plan_run(lenet(batch_size, GetParam())), {.seed = 1});
    EXPECT_EQ(session.evaluation_batch(), batch_size);
    const Stripes data(5);
    BatchLoader loader(session.device(), session.pinned(), data, {.samples = 5, .batch = batch_size}, 0, 1);
    const StagedBatch batch = loader.next();
    EXPECT_EQ(batch.samples, 5U);
    const std::array inputs{batch.images, batch.targets};
    const LossMetrics result = session.wait(session.submit_evaluation(inputs)).losses.front();
    session.finish();
    return result;
  };
  const LossMetrics padded = metrics(8);
  const LossMetrics full = metrics(5);
  EXPECT_NEAR(padded.loss, full.loss, 1e-5);
  EXPECT_EQ(padded.correct, full.correct);
  EXPECT_EQ(padded.counted, 5U);
}

TEST(Trainer, EvaluatesOnlyEpochsOfDataWithATestSplit) {
  const PlannedRun run = plan_run(lenet(8));
  EXPECT_FALSE(Trainer(run, stripes(16, 8, 0), {.steps = 2}).train({}).test_accuracy);
  const DatasetSplits no_test{.training = std::make_unique<Stripes>(16), .test = nullptr};
  EXPECT_FALSE(Trainer(run, no_test, {.epochs = 1}).train({}).test_accuracy);
}

// --- batches of training -----------------------------------------------------------------------------------

// Every sample is the same image, so that all batches have the same statistics.
class OneImage : public Stripes {
 public:
  using Stripes::Stripes;
  void read(const SampleKey&, std::span<float> image, std::span<std::int32_t> targets) const override {
    Stripes::read({.index = 3}, image, targets);
  }
};

Network normalised(std::int64_t batch) {
  NetworkBuilder net("normalised", {batch, 1, 28, 28});
  const Tensor x = net.batch_normalization("norm", net.input());
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
  return std::move(net).build();
}

// Regression: the last batch of an epoch was filled with zeros. The zeros changed the mean and the variance
// of batch normalisation, and so the running statistics for inference.
TEST_P(TrainerPolicies, FillALastBatchWithNothingButSamples) {
  const auto state_after_two_epochs = [](std::uint64_t samples) {
    RunOptions options = lenet(8, GetParam());
    options.model = {};
    const PlannedRun run = plan_run(normalised(8), options);
    const DatasetSplits data{.training = std::make_unique<OneImage>(samples), .test = nullptr};
    std::vector<ParameterValues> parameters;
    Trainer trainer(
        run, data, {.epochs = 2, .save = [&](Session& session) { parameters = session.state().parameters; }});
    trainer.train({});
    return parameters;
  };
  // There are two batches per epoch, full or not.
  const std::vector<ParameterValues> full = state_after_two_epochs(16);
  const std::vector<ParameterValues> filled = state_after_two_epochs(11);
  ASSERT_EQ(filled.size(), full.size());
  for (std::size_t i = 0; i < full.size(); ++i) {
    EXPECT_EQ(filled[i].values, full[i].values) << full[i].name;
  }
}

// --- what must not change results --------------------------------------------------------------------------

TEST_P(TrainerPolicies, ASlowLinkChangesNoResult) {
  const TrainOptions fast{.steps = 3};
  TrainOptions slow = fast;
  slow.session.link_gbytes_per_second = 0.05;
  EXPECT_EQ(train(lenet(8, GetParam()), fast).weights_sha256,
            train(lenet(8, GetParam()), slow).weights_sha256);
}

TEST_P(TrainerPolicies, TracingChangesNoResult) {
  TrainOptions options{.steps = 6};
  const TrainingResult plain = train(lenet(8, GetParam()), options);
  EXPECT_TRUE(plain.trace.empty());
  options.trace = true;
  const TrainingResult traced = train(lenet(8, GetParam()), options);
  EXPECT_EQ(traced.weights_sha256, plain.weights_sha256);
  ASSERT_FALSE(traced.trace.empty());
  for (const TraceEvent& event : traced.trace) {
    EXPECT_LT(event.stream, traced.stream_names.size());
    EXPECT_LE(event.begin_seconds, event.end_seconds);
  }
}

TEST(Trainer, TheSeedDecidesAndTheStepsCount) {
  const TrainingResult first = train(lenet(8), {.steps = 3, .session = {.seed = 1}});
  EXPECT_EQ(train(lenet(8), {.steps = 3, .session = {.seed = 1}}).weights_sha256, first.weights_sha256);
  EXPECT_NE(train(lenet(8), {.steps = 3, .session = {.seed = 2}}).weights_sha256, first.weights_sha256);
  EXPECT_NE(train(lenet(8), {.steps = 4, .session = {.seed = 1}}).weights_sha256, first.weights_sha256);
}

// --- what cannot be ----------------------------------------------------------------------------------------

TEST(Trainer, WantsEitherEpochsOrSteps) {
  const PlannedRun run = plan_run(lenet(8));
  const DatasetSplits data = testing::data_for(run, "synthetic");
  EXPECT_THROW(Trainer(run, data, {}), InvalidArgument);
  EXPECT_THROW(Trainer(run, data, {.epochs = 1, .steps = 1}), InvalidArgument);
}

TEST(Trainer, DoesNotTrainOnASimulatedDevice) {
  RunOptions options = lenet(8);
  options.device = "sim:titan-x";
  const PlannedRun run = plan_run(options);
  const DatasetSplits data = testing::data_for(run, "synthetic");
  try {
    Trainer trainer(run, data, {.steps = 1});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("sim:titan-x"));
  }
}

TEST(Trainer, WantsALinkThatMoves) {
  const PlannedRun run = plan_run(lenet(8));
  const DatasetSplits data = testing::data_for(run, "synthetic");
  EXPECT_THROW(Trainer(run, data, {.steps = 1, .session = {.link_gbytes_per_second = 0.0}}), InvalidArgument);
}

// A data set with a damaged sample.
class Damaged : public Stripes {
 public:
  Damaged(std::uint64_t samples, std::uint64_t damaged) : Stripes(samples), damaged_(damaged) {}
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    if (key.index == damaged_) {
      throw DataError("sample " + std::to_string(key.index) + " is damaged");
    }
    Stripes::read(key, image, targets);
  }

 private:
  std::uint64_t damaged_;
};

void expect_damage(const DatasetSplits& data, Policy policy) {
  const PlannedRun run = plan_run(lenet(8, policy));
  Trainer trainer(run, data, {.epochs = 2});
  try {
    trainer.train({});
    ADD_FAILURE() << "went unnoticed";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "sample 30 is damaged");
  }
}

TEST_P(TrainerPolicies, ADamagedSampleSurfacesWithStepsInFlight) {
  expect_damage({.training = std::make_unique<Damaged>(40, 30), .test = nullptr}, GetParam());
}

TEST_P(TrainerPolicies, ADamagedSampleSurfacesInEvaluation) {
  expect_damage({.training = std::make_unique<Stripes>(16), .test = std::make_unique<Damaged>(40, 30)},
                GetParam());
}

TEST(Trainer, AnExceptionOfTheReportSurfaces) {
  const PlannedRun run = plan_run(lenet(8));
  const DatasetSplits data = testing::data_for(run, "synthetic");
  Trainer trainer(run, data, {.steps = 10});
  EXPECT_THROW(trainer.train([](const StepReport& report) {
    if (report.step == 3) {
      throw DataError("disk full");
    }
  }),
               DataError);
}

}  // namespace
}  // namespace vdnn::trainer_test
