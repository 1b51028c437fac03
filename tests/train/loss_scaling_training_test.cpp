// Training in fp16 with dynamic loss scaling: after an overflow every parameter and state keeps its bits, and
// the scale recovers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/thread_ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/error.h"
#include "vdnn/session.h"

namespace vdnn::loss_scaling_training_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A loss scale so large that fp16 gradients overflow until the scale has been halved more than five times.
constexpr float kAbsurd = 0x1p40F;

Network small_network() {
  NetworkBuilder net("small", {4, 2, 6, 6});
  const Tensor x =
      net.convolution("conv", net.input(),
                      {.filters = 3, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .dilation = {}});
  net.softmax_cross_entropy(
      "loss",
      net.fully_connected("fc", net.relu("relu", net.batch_normalization("norm", x)), {.outputs = 5}));
  return std::move(net).build();
}

struct Wanted {
  float initial = 65536;
  std::uint32_t growth_interval = 2000;
  OptimizerSpec optimizer = AdamSpec{};
  std::optional<float> clip_norm = {};
  std::uint32_t micro_steps = 1;
  Policy policy = Policy::kOffloadNone;
};

PlannedRun planned(const Wanted& wanted) {
  return plan_run(
      small_network(),
      {.device = "cpu",
       .memory_bytes = std::uint64_t{64} << 20U,
       .threads = 1,
       .policy = wanted.policy,
       .training = {.optimizer = wanted.optimizer,
                    .clip_norm = wanted.clip_norm,
                    .micro_steps = wanted.micro_steps,
                    .precision = {.storage = DataType::kF16, .fp32_layers = {}},
                    .loss_scaling = {.initial = wanted.initial, .growth_interval = wanted.growth_interval}}});
}

class LossScaledTraining : public ::testing::Test {
 protected:
  LossScaledTraining() {
    for (std::size_t i = 0; i < images_.size(); ++i) {
      images_[i] = std::sin(static_cast<float>(i));
    }
  }
  StepMetrics step(Session& session) const {
    return session.step({std::as_bytes(std::span(images_)), std::as_bytes(std::span(targets_))}, 0.01F);
  }

  std::vector<float> images_ = std::vector<float>(std::size_t{4} * 2 * 6 * 6);
  std::vector<std::int32_t> targets_{0, 1, 2, 3};
};

bool is_running(const std::string& name) {
  return name.find("running") != std::string::npos;
}

TEST_F(LossScaledTraining, AnOverflowChangesNoParameterOrStateAndHalvesTheScale) {
  for (const std::optional<float> clip_norm : {std::optional<float>(), std::optional<float>(0.5F)}) {
    Session session(planned({.initial = kAbsurd, .clip_norm = clip_norm}), {.seed = 2});
    const TrainingState before = session.state();
    const StepMetrics metrics = step(session);
    ASSERT_TRUE(metrics.loss_scaling);
    EXPECT_TRUE(metrics.loss_scaling->skipped);
    EXPECT_EQ(metrics.loss_scaling->scale, kAbsurd);
    EXPECT_EQ(metrics.loss_scaling->skipped_steps, 1U);
    const TrainingState after = session.state();
    for (std::size_t i = 0; i < before.parameters.size(); ++i) {
      if (is_running(before.parameters[i].name)) {
        EXPECT_NE(before.parameters[i].values, after.parameters[i].values)
            << "running statistics change, as in PyTorch";
      } else {
        EXPECT_EQ(before.parameters[i].values, after.parameters[i].values) << before.parameters[i].name;
      }
    }
    for (std::size_t i = 0; i < before.optimizer.size(); ++i) {
      EXPECT_EQ(before.optimizer[i].values, after.optimizer[i].values) << before.optimizer[i].name;
    }
    EXPECT_EQ(after.loss_scale->scale, kAbsurd / 2);
    EXPECT_EQ(after.loss_scale->skipped_steps, 1);
  }
}

TEST_F(LossScaledTraining, TheScaleRecoversAndTrainingGoesOn) {
  Session session(planned({.initial = kAbsurd}), {.seed = 2});
  std::uint64_t skipped = 0;
  StepMetrics metrics;
  do {
    metrics = step(session);
    skipped += metrics.loss_scaling->skipped ? 1 : 0;
    ASSERT_LT(skipped, 40U);
  } while (metrics.loss_scaling->skipped);
  EXPECT_GT(skipped, 5U);
  EXPECT_EQ(metrics.loss_scaling->skipped_steps, skipped);
  EXPECT_EQ(metrics.loss_scaling->scale, std::ldexp(kAbsurd, -static_cast<int>(skipped)));
  EXPECT_TRUE(std::isfinite(*metrics.gradient_norm));
  const double first = metrics.loss;
  for (int i = 0; i < 60; ++i) {
    metrics = step(session);
  }
  EXPECT_LT(metrics.loss, 0.5 * first);
}

TEST_F(LossScaledTraining, TheScaleGrowsAfterGoodStepsUntilGradientsOverflow) {
  Session session(planned({.initial = 1024, .growth_interval = 2}), {.seed = 2});
  step(session);
  EXPECT_EQ(session.state().loss_scale->good_steps, 1);
  step(session);
  EXPECT_EQ(session.state().loss_scale->scale, 2048);
  float largest = 0;
  for (int i = 0; i < 80; ++i) {
    largest = std::max(largest, step(session).loss_scaling->scale);
  }
  const LossScale state = *session.state().loss_scale;
  EXPECT_GT(state.skipped_steps, 0);
  EXPECT_GT(largest, 65536);
  EXPECT_LE(state.scale, largest);
}

// bf16 and fp32 have the exponent range of fp32.
TEST_F(LossScaledTraining, OtherPrecisionsHaveNoScale) {
  for (const DataType type : {DataType::kF32, DataType::kBf16}) {
    Session session(
        plan_run(small_network(), {.device = "cpu",
                                   .memory_bytes = std::uint64_t{64} << 20U,
                                   .threads = 1,
                                   .policy = Policy::kOffloadNone,
                                   .training = {.precision = {.storage = type, .fp32_layers = {}}}}),
        {.seed = 2});
    EXPECT_FALSE(step(session).loss_scaling);
    EXPECT_FALSE(session.state().loss_scale);
  }
}

// The gradients of a step's micro-steps are summed with one scale. An overflow in any micro-step skips the
// whole step.
TEST_F(LossScaledTraining, MicroStepsShareAScaleAndAreSkippedTogether) {
  Session session(planned({.initial = 256, .micro_steps = 2}), {.seed = 2});
  const TrainingState before = session.state();
  EXPECT_FALSE(step(session).loss_scaling) << "no update";
  images_[0] = std::numeric_limits<float>::infinity();
  const StepMetrics metrics = step(session);
  EXPECT_TRUE(metrics.loss_scaling->skipped);
  EXPECT_EQ(session.steps(), 1U);
  const TrainingState after = session.state();
  for (std::size_t i = 0; i < before.parameters.size(); ++i) {
    if (!is_running(before.parameters[i].name)) {
      EXPECT_EQ(before.parameters[i].values, after.parameters[i].values) << before.parameters[i].name;
    }
  }
  EXPECT_EQ(after.loss_scale->scale, 128);
}

TEST_F(LossScaledTraining, IsTheSameUnderEveryPolicy) {
  std::optional<std::string> hash;
  for (const Policy policy : testing::kPolicies) {
    Session session(planned({.initial = 0x1p22F, .growth_interval = 3, .clip_norm = 1, .policy = policy}),
                    {.seed = 2});
    for (int i = 0; i < 12; ++i) {
      step(session);
    }
    EXPECT_GT(session.state().loss_scale->skipped_steps, 0);
    EXPECT_EQ(hash.value_or(session.weights_sha256()), session.weights_sha256()) << to_string(policy);
    hash = session.weights_sha256();
  }
}

// --- ranks -------------------------------------------------------------------------------------------------

constexpr std::uint32_t kRanks = 4;

struct Shares {
  std::uint32_t ranks = 1;
  std::uint32_t micro_steps = 1;
  DataType reduce_precision = DataType::kF32;
};

PlannedRun shared_run(const Shares& shares) {
  NetworkBuilder net("plain", {2, 3, 6, 6});
  const Tensor x =
      net.convolution("conv", net.input(),
                      {.filters = 5, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .dilation = {}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.relu("relu", x), {.outputs = 5}));
  return plan_run(std::move(net).build(),
                  {.device = "cpu",
                   .memory_bytes = std::uint64_t{64} << 20U,
                   .host_memory_bytes = std::uint64_t{64} << 20U,
                   .threads = 1,
                   .policy = Policy::kOffloadAll,
                   .training = {.optimizer = AdamSpec{},
                                .ranks = shares.ranks,
                                .micro_steps = shares.micro_steps,
                                .bucket_bytes = 512,
                                .reduce_precision = shares.reduce_precision,
                                .precision = {.storage = DataType::kF16, .fp32_layers = {}},
                                .loss_scaling = {.initial = kAbsurd, .growth_interval = 4}}});
}

const TrainOptions kSharedTraining{.learning_rate = 0.02, .steps = 40, .session = {.seed = 7}};

std::vector<TrainingResult> train_by_ranks(const PlannedRun& run) {
  const DatasetSplits data = testing::data_for(run, "synthetic");
  std::vector<TrainingResult> results(kRanks);
  testing::run_ranks(kRanks, [&](ProcessGroup& group) {
    TrainOptions own = kSharedTraining;
    own.processes = &group;
    results[static_cast<std::size_t>(group.rank())] = Trainer(run, data, own).train({});
  });
  return results;
}

// If one rank's gradients overflow, so do the sums that all ranks get, and all ranks skip the step. Four
// ranks end with the same bits as one rank that accumulates four micro-steps.
TEST(LossScaledRanks, SkipTogetherAndHaveTheBitsOfOneThatAccumulates) {
  const PlannedRun alone = shared_run({.micro_steps = kRanks});
  const TrainingResult accumulated =
      Trainer(alone, testing::data_for(alone, "synthetic"), kSharedTraining).train({});
  EXPECT_GT(accumulated.loss_scaling->skipped_steps, 5U);
  EXPECT_LT(accumulated.loss_scaling->skipped_steps, 39U);

  for (const TrainingResult& result : train_by_ranks(shared_run({.ranks = kRanks}))) {
    EXPECT_EQ(result.weights_sha256, accumulated.weights_sha256);
    EXPECT_EQ(result.loss_scaling->skipped_steps, accumulated.loss_scaling->skipped_steps);
    EXPECT_EQ(result.loss_scaling->scale, accumulated.loss_scaling->scale);
  }
}

// Ranks send and sum gradients in fp16. A step is skipped even if only that sum overflows.
TEST(LossScaledRanks, SkipTogetherWhereTheyReduceInFp16) {
  const std::vector<TrainingResult> results =
      train_by_ranks(shared_run({.ranks = kRanks, .reduce_precision = DataType::kF16}));
  EXPECT_GT(results[0].loss_scaling->skipped_steps, 5U);
  EXPECT_LT(results[0].loss_scaling->skipped_steps, 39U);
  EXPECT_TRUE(std::isfinite(results[0].loss));
  for (const TrainingResult& result : results) {
    EXPECT_EQ(result.weights_sha256, results[0].weights_sha256);
    EXPECT_EQ(result.loss_scaling->skipped_steps, results[0].loss_scaling->skipped_steps);
    EXPECT_EQ(result.loss_scaling->scale, results[0].loss_scaling->scale);
  }
}

// --- checkpoints -------------------------------------------------------------------------------------------

class LossScaledCheckpoint : public testing::TemporaryDirectory {};

TEST_F(LossScaledCheckpoint, ATrainingThatGoesOnHasTheBitsOfOneThatWasNotInterrupted) {
  const PlannedRun run = planned({.initial = 0x1p30F, .growth_interval = 3});
  const DatasetSplits data = testing::data_for(run, "synthetic");
  const TrainOptions whole{.learning_rate = 0.02, .steps = 30, .session = {.seed = 7}};
  const TrainingResult uninterrupted = Trainer(run, data, whole).train({});
  ASSERT_GT(uninterrupted.loss_scaling->skipped_steps, 3U);

  TrainOptions part = whole;
  part.steps = 11;
  part.save = [&](Session& session) { save_checkpoint(directory_ / "checkpoint", session); };
  Trainer(run, data, part).train({});
  const Checkpoint checkpoint(directory_ / "checkpoint");
  ASSERT_TRUE(checkpoint.info().loss_scale);
  EXPECT_LT(checkpoint.info().loss_scale->scale, 0x1p30F);
  TrainOptions rest = whole;
  rest.start = checkpoint.state(run);
  const TrainingResult resumed = Trainer(run, data, rest).train({});
  EXPECT_EQ(resumed.weights_sha256, uninterrupted.weights_sha256);
  EXPECT_EQ(resumed.loss_scaling->skipped_steps, uninterrupted.loss_scaling->skipped_steps);
}

// --- divergence --------------------------------------------------------------------------------------------

// No scale helps against an overflow in the forward pass, so training ends at a scale of 1.
TEST(LossScaledDivergence, EndsATrainingThatOverflowsWhateverTheScale) {
  RunOptions options = planned({}).options;
  options.training.loss_scaling.initial = 8;
  const PlannedRun run = plan_run(small_network(), options);
  const DatasetSplits data = testing::data_for(run, "synthetic");
  TrainOptions training{.learning_rate = 0.01, .steps = 50, .session = {.seed = 7}};
  TrainingState start;
  {
    Session session(run, {.seed = 7});
    start = session.state();
  }
  for (ParameterValues& values : start.parameters) {
    if (values.name == "norm.scale") {
      std::ranges::fill(values.values, 1e30F);
    }
  }
  start.step = 0;
  start.seed = 7;
  training.start = start;
  EXPECT_THAT([&] { Trainer(run, data, training).train({}); },
              ThrowsMessage<Diverged>(HasSubstr("step 4 has diverged: its loss is nan")));
}

TEST(LossScaledOptions, InvalidScalesAreRefused) {
  for (const float initial :
       {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT([&] { planned({.initial = initial}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a loss scale of")));
  }
  EXPECT_THROW(planned({.growth_interval = 0}), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::loss_scaling_training_test
