// Ranks train together as threads, under every policy, in the predicted memory. Their weights are bit for bit
// those of one rank that accumulates gradients over as many micro-steps. With synchronised batch
// normalisation, they are within rounding those of one rank with the batches of all ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "src/base/random.h"
#include "tests/fakes/thread_ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"
#include "vdnn/initialisation.h"
#include "vdnn/session.h"

namespace vdnn::data_parallel_test {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr int kRanks = 4;
constexpr std::uint64_t kSteps = 30;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSide = 8;

constexpr Policy kAllPolicies[] = {Policy::kBaseline,   Policy::kOffloadNone, Policy::kOffloadConv,
                                   Policy::kOffloadAll, Policy::kDynamic,     Policy::kOptimal};

ConvolutionSpec same_convolution(std::int64_t filters) {
  return {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
}

// Has no batch normalisation, whose statistics are those of one batch. Has dropout, which depends on a
// sample's place in the batch of all ranks.
Network plain_network(std::int64_t batch = kBatch) {
  NetworkBuilder net("plain", {batch, 3, kSide, kSide});
  Tensor x = net.relu("relu1", net.convolution("conv1", net.input(), same_convolution(8)));
  x = net.pooling("pool", x, {.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}});
  x = net.dropout("drop1", x, 0.25F);
  x = net.relu("relu2", net.convolution("conv2", x, same_convolution(12)));
  x = net.dropout("drop2", net.relu("relu3", net.fully_connected("fc1", x, {.outputs = 24})), 0.5F);
  net.softmax_cross_entropy("loss", net.fully_connected("fc2", x, {.outputs = 5}));
  return std::move(net).build();
}

struct Shares {
  std::uint32_t ranks = 1;
  std::uint32_t micro_steps = 1;
  DataType reduce_precision = DataType::kF32;
};

RunOptions options(Policy policy, const OptimizerSpec& optimizer, const Shares& shares) {
  return {.device = "cpu",
          .memory_bytes = std::uint64_t{64} << 20,
          .host_memory_bytes = std::uint64_t{64} << 20,
          .threads = 1,
          .policy = policy,
          // The buckets are small, so that there are several.
          .training = {.optimizer = optimizer,
                       .clip_norm = 0.5F,
                       .ranks = shares.ranks,
                       .micro_steps = shares.micro_steps,
                       .bucket_bytes = 4096,
                       .reduce_precision = shares.reduce_precision}};
}

// Policies that choose algorithms get those of a static policy, since the test compares bits.
PlannedRun planned(Policy policy, const OptimizerSpec& optimizer, const Shares& shares) {
  RunOptions wish = options(policy, optimizer, shares);
  if (policy == Policy::kDynamic || policy == Policy::kOptimal) {
    const PlannedRun none = plan_run(plain_network(), options(Policy::kOffloadNone, optimizer, shares));
    for (OpId id = 0; id < none.tape->ops().size(); ++id) {
      const Op& op = none.tape->op(id);
      wish.recorded_algorithms[op.name] = op.algorithms[none.plan.algorithms[id]].name;
    }
  }
  return plan_run(plain_network(), wish);
}

TrainOptions training(ProcessGroup* processes = nullptr) {
  return {.learning_rate = 0.05, .steps = kSteps, .session = {.seed = 7}, .processes = processes};
}

std::vector<TrainingResult> train_by_ranks(const PlannedRun& run) {
  const DatasetSplits data = testing::data_for(run, "synthetic");
  std::vector<TrainingResult> results(run.options.training.ranks);
  testing::run_ranks(static_cast<int>(results.size()), [&](ProcessGroup& group) {
    results[static_cast<std::size_t>(group.rank())] = Trainer(run, data, training(&group)).train({});
  });
  return results;
}

TrainingResult train_alone(const PlannedRun& run) {
  return Trainer(run, testing::data_for(run, "synthetic"), training()).train({});
}

const SgdSpec kMomentum{.momentum = 0.9F, .weight_decay = 5e-4F};

class DataParallelTest : public ::testing::TestWithParam<Policy> {
 protected:
  static void SetUpTestSuite() {
    accumulated_ = train_alone(planned(Policy::kOffloadNone, kMomentum, {.micro_steps = kRanks}));
  }
  static TrainingResult accumulated_;
};
TrainingResult DataParallelTest::accumulated_;

TEST_P(DataParallelTest, RanksHaveTheWeightsOfOneThatAccumulates) {
  const PlannedRun run = planned(GetParam(), kMomentum, {.ranks = kRanks});
  for (const TrainingResult& result : train_by_ranks(run)) {
    EXPECT_EQ(result.weights_sha256, accumulated_.weights_sha256);
    EXPECT_NEAR(result.loss, accumulated_.loss, 1e-6);
    EXPECT_EQ(result.steps, kSteps);
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
  }
}

TEST_P(DataParallelTest, AccumulationHasTheSameBitsAndThePredictedPeak) {
  const PlannedRun run = planned(GetParam(), kMomentum, {.micro_steps = kRanks});
  const TrainingResult result = train_alone(run);
  EXPECT_EQ(result.weights_sha256, accumulated_.weights_sha256);
  EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
  EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
  EXPECT_EQ(result.system_allocations_after_first_step, 0U);
}

// A fold over two ranks of folds over two micro-steps adds in a different order than one fold over four.
TEST_P(DataParallelTest, RanksThatAccumulateAgreeWithOneToWithinRounding) {
  const PlannedRun run = planned(GetParam(), kMomentum, {.ranks = 2, .micro_steps = 2});
  const std::vector<TrainingResult> results = train_by_ranks(run);
  EXPECT_EQ(results[0].weights_sha256, results[1].weights_sha256);
  for (const TrainingResult& result : results) {
    EXPECT_NEAR(result.loss, accumulated_.loss, 1e-4);
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
  }
}

// Policies and budgets change no bit of the result, and ranks agree. The sum differs from that in fp32 by
// rounding only: the unit roundoff of bf16 is 2^-9.
TEST_P(DataParallelTest, NarrowReductionsHaveOneResultAndThePredictedPeak) {
  const Shares shares{.ranks = kRanks, .reduce_precision = DataType::kBf16};
  const std::string of_none =
      train_by_ranks(planned(Policy::kOffloadNone, kMomentum, shares))[0].weights_sha256;
  const PlannedRun run = planned(GetParam(), kMomentum, shares);
  for (const TrainingResult& result : train_by_ranks(run)) {
    EXPECT_EQ(result.weights_sha256, of_none);
    EXPECT_NE(result.weights_sha256, accumulated_.weights_sha256);
    EXPECT_NEAR(result.loss, accumulated_.loss, 0.02 * accumulated_.loss);
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, DataParallelTest, ::testing::ValuesIn(kAllPolicies),
                         [](const auto& test) { return to_string(test.param); });

TEST(DataParallel, AdamHasTheBitsOfAccumulationToo) {
  const TrainingResult alone =
      train_alone(planned(Policy::kOffloadNone, AdamSpec{}, {.micro_steps = kRanks}));
  for (const TrainingResult& result :
       train_by_ranks(planned(Policy::kOffloadAll, AdamSpec{}, {.ranks = kRanks}))) {
    EXPECT_EQ(result.weights_sha256, alone.weights_sha256);
  }
}

// --- synchronised batch normalisation ------------------------------------------------------------

constexpr std::uint64_t kNormalizedSteps = 5;
constexpr std::int64_t kClasses = 5;

// Two residual blocks like those of resnet20.
Network normalized_network(std::int64_t batch) {
  NetworkBuilder net("normalized", {batch, 3, kSide, kSide});
  Tensor x = net.relu(
      "relu0", net.batch_normalization("norm0", net.convolution("conv0", net.input(), same_convolution(8))));
  for (const std::string block : {"1", "2"}) {
    Tensor y = net.convolution("conv" + block + "a", x, same_convolution(8));
    y = net.relu("relu" + block + "a", net.batch_normalization("norm" + block + "a", y));
    y = net.batch_normalization("norm" + block + "b",
                                net.convolution("conv" + block + "b", y, same_convolution(8)));
    x = net.relu("relu" + block, net.add("add" + block, y, x));
  }
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = kClasses}));
  return std::move(net).build();
}

PlannedRun planned_normalized(Policy policy, std::int64_t batch, const Shares& shares) {
  RunOptions wish = options(policy, SgdSpec{.momentum = 0.9F}, shares);
  wish.training.clip_norm = std::nullopt;
  wish.training.sync_batch_normalization = true;
  return plan_run(normalized_network(batch), wish);
}

// Consecutive samples of the batch of all ranks, as a function of the step.
struct Part {
  std::vector<float> images;
  std::vector<std::int32_t> classes;

  Part(std::uint64_t step, std::int64_t samples, std::int64_t first_sample) {
    for (std::int64_t sample = first_sample; sample < first_sample + samples; ++sample) {
      SplitMix64 random(step * 1000 + static_cast<std::uint64_t>(sample));
      classes.push_back(static_cast<std::int32_t>(random.below(kClasses)));
      // The mean is far from zero and grows with each sample, so no rank's statistics are those of all ranks.
      for (std::int64_t i = 0; i < 3 * kSide * kSide; ++i) {
        images.push_back(random.symmetric() + 0.25F * static_cast<float>(sample));
      }
    }
  }
  std::array<Session::Bytes, 2> inputs() const {
    return {std::as_bytes(std::span(images)), std::as_bytes(std::span(classes))};
  }
};

struct Trained {
  TrainingState state;
  std::string weights_sha256;
  double loss = 0;
  std::uint64_t peak_bytes = 0;
};

// Trains one rank of `run`. Ranks do not share statistics at the end, since the tests check those of each
// rank.
Trained step_normalized(const PlannedRun& run, ProcessGroup* group) {
  SessionOptions how{.seed = 3};
  if (group != nullptr) {
    how.connect = [group](Device& device) { return group->communicator(device); };
  }
  Session session(run, how);
  const std::int64_t batch = run.batch();
  const std::int64_t rank = group == nullptr ? 0 : group->rank();
  const std::int64_t micro_steps = run.options.training.micro_steps;
  Trained result;
  for (std::uint64_t step = 0; step < kNormalizedSteps; ++step) {
    result.loss = 0;
    for (std::int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
      const Part part(step, batch, (rank * micro_steps + micro_step) * batch);
      result.loss += session.step(part.inputs(), 0.05F).loss / static_cast<double>(micro_steps);
    }
  }
  session.finish();
  result.state = session.state();
  result.weights_sha256 = session.weights_sha256();
  result.peak_bytes = session.device().counters().peak_committed_bytes;
  return result;
}

std::vector<Trained> step_by_ranks(const PlannedRun& run) {
  std::vector<Trained> results(run.options.training.ranks);
  testing::run_ranks(static_cast<int>(results.size()), [&](ProcessGroup& group) {
    results[static_cast<std::size_t>(group.rank())] = step_normalized(run, &group);
  });
  return results;
}

// Compares parameters and running statistics, each relative to its largest element.
void expect_close(const TrainingState& got, const TrainingState& want) {
  constexpr float kTolerance = 2e-4F;
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (std::size_t each = 0; each < got.parameters.size(); ++each) {
    const ParameterValues& parameter = want.parameters[each];
    SCOPED_TRACE(parameter.name);
    float largest = 1e-2F;
    for (const float value : parameter.values) {
      largest = std::max(largest, std::abs(value));
    }
    for (std::size_t i = 0; i < parameter.values.size(); ++i) {
      EXPECT_NEAR(got.parameters[each].values[i], parameter.values[i], kTolerance * largest) << i;
    }
  }
}

class SynchronizedTest : public ::testing::TestWithParam<Policy> {
 protected:
  static void SetUpTestSuite() {
    bits_ =
        step_by_ranks(planned_normalized(Policy::kOffloadNone, kBatch, {.ranks = kRanks}))[0].weights_sha256;
    alone_ = step_normalized(planned_normalized(Policy::kOffloadNone, kRanks * kBatch, {}), nullptr);
  }
  static std::string bits_;
  static Trained alone_;
};
std::string SynchronizedTest::bits_;
Trained SynchronizedTest::alone_;

TEST_P(SynchronizedTest, RanksAreOneRankWithTheirBatchesTogetherUnderEveryPolicy) {
  const PlannedRun run = planned_normalized(GetParam(), kBatch, {.ranks = kRanks});
  const std::vector<Trained> ranks = step_by_ranks(run);
  for (const Trained& rank : ranks) {
    EXPECT_EQ(rank.weights_sha256, bits_) << "including running statistics";
    EXPECT_NEAR(rank.loss, alone_.loss, 1e-4);
    EXPECT_EQ(rank.peak_bytes, run.prediction.peak_bytes);
    expect_close(rank.state, alone_.state);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SynchronizedTest, ::testing::ValuesIn(kAllPolicies),
                         [](const auto& test) { return to_string(test.param); });

// Shows that the test above depends on synchronisation: without it, ranks end with different weights.
TEST(Synchronized, WithoutItRanksHaveStatisticsOfTheirOwn) {
  RunOptions wish = options(Policy::kOffloadNone, SgdSpec{.momentum = 0.9F}, {.ranks = kRanks});
  wish.training.clip_norm = std::nullopt;
  const std::vector<Trained> ranks = step_by_ranks(plan_run(normalized_network(kBatch), wish));
  EXPECT_NE(ranks[0].weights_sha256, ranks[1].weights_sha256);
}

// Statistics are those of the ranks' batches in one micro-step.
TEST(Synchronized, WithMicroStepsRanksStayAlike) {
  const std::vector<Trained> ranks =
      step_by_ranks(planned_normalized(Policy::kOffloadAll, kBatch, {.ranks = 2, .micro_steps = 2}));
  EXPECT_EQ(ranks[0].weights_sha256, ranks[1].weights_sha256);
  EXPECT_EQ(ranks[0].state.step, kNormalizedSteps);
}

// A device that trains alone has no other ranks.
TEST(Synchronized, AloneItIsOrdinaryBatchNormalization) {
  RunOptions ordinary = options(Policy::kOffloadNone, SgdSpec{.momentum = 0.9F}, {});
  ordinary.training.clip_norm = std::nullopt;
  const PlannedRun run = planned_normalized(Policy::kOffloadNone, kBatch, {});
  EXPECT_FALSE(run.tape->collective());
  EXPECT_EQ(step_normalized(run, nullptr).weights_sha256,
            step_normalized(plan_run(normalized_network(kBatch), ordinary), nullptr).weights_sha256);
}

// --- checkpoints with and without synchronised normalisation --------------------------------------

RunOptions normalized_options(bool synchronized, AlgorithmPreference algorithms) {
  RunOptions wish = options(Policy::kOffloadNone, SgdSpec{.momentum = 0.9F}, {.ranks = 2});
  wish.training.clip_norm = std::nullopt;
  wish.training.sync_batch_normalization = synchronized;
  wish.algorithms = algorithms;
  return wish;
}

class OtherNormalization : public testing::TemporaryDirectory, public ::testing::WithParamInterface<bool> {
 protected:
  PlannedRun planned(bool synchronized,
                     AlgorithmPreference algorithms = AlgorithmPreference::kPerformance) const {
    return plan_run(normalized_network(kBatch), normalized_options(synchronized, algorithms));
  }

  // Runs two steps from `start`, if given, and returns the state of rank 0. With `save`, also writes a
  // checkpoint.
  TrainingState steps(const PlannedRun& run, const std::optional<TrainingState>& start, bool save) const {
    TrainingState result;
    testing::run_ranks(2, [&](ProcessGroup& group) {
      Session session(run,
                      {.seed = 3, .connect = [&](Device& device) { return group.communicator(device); }});
      if (start) {
        session.restore(*start);
      }
      for (int step = 0; step < 2; ++step) {
        session.step(Part(session.steps(), kBatch, group.rank() * kBatch).inputs(), 0.05F);
      }
      session.finish();
      session.share_statistics();
      if (group.rank() == 0) {
        result = session.state();
        if (save) {
          save_checkpoint(path(), session);
        }
      }
    });
    return result;
  }

  fs::path path() const { return directory_ / "checkpoint"; }
};

INSTANTIATE_TEST_SUITE_P(From, OtherNormalization, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "synchronized" : "own"; });

std::string sha256_of(const TrainingState& state) {
  std::vector<std::vector<float>> values;
  for (const auto* const list : {&state.parameters, &state.optimizer}) {
    for (const ParameterValues& one : *list) {
      values.push_back(one.values);
    }
  }
  return parameters_sha256(values);
}

// Synchronised normalisation has other ops, for which the checkpoint records nothing. Regression: the
// checkpoint was refused.
TEST_P(OtherNormalization, GoesOnFromTheCheckpoint) {
  const bool synchronized = GetParam();
  const TrainingState saved = steps(planned(synchronized), std::nullopt, true);
  const Checkpoint checkpoint(path());
  const PlannedRun run =
      plan_resumed_run(checkpoint, normalized_network(kBatch),
                       normalized_options(!synchronized, AlgorithmPreference::kPerformance));
  const TrainingState read = checkpoint.state(run);
  EXPECT_EQ(sha256_of(read), sha256_of(saved));
  EXPECT_EQ(read.step, 2U);
  const std::string rest = sha256_of(steps(run, read, false));
  // The result equals that of a new run from the saved state, not that of the run that wrote the checkpoint.
  EXPECT_EQ(rest, sha256_of(steps(planned(!synchronized), saved, false)));
  EXPECT_NE(rest, sha256_of(steps(planned(synchronized), saved, false)));
}

TEST_P(OtherNormalization, ComputesAllElseAsRecorded) {
  const PlannedRun before = planned(GetParam());
  steps(before, std::nullopt, true);
  ASSERT_NE(before.plan.algorithms, planned(GetParam(), AlgorithmPreference::kMemory).plan.algorithms);
  const Checkpoint checkpoint(path());
  const PlannedRun run = plan_resumed_run(checkpoint, normalized_network(kBatch),
                                          normalized_options(!GetParam(), AlgorithmPreference::kMemory));
  std::size_t compared = 0;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    const Op& op = run.tape->op(id);
    if (op.recorded() && !std::holds_alternative<BatchNormalizationSpec>(op.spec)) {
      EXPECT_EQ(op.algorithms[run.plan.algorithms[id]].name, checkpoint.info().algorithms.at(op.name));
      ++compared;
    }
  }
  EXPECT_GT(compared, 0U);
}

// The recorded algorithms must be those of one kind of training, not a mixture.
TEST_P(OtherNormalization, IsRefusedWhereARecordIsMissingOrStray) {
  steps(planned(GetParam()), std::nullopt, true);
  const std::map<std::string, std::string> whole = Checkpoint(path()).info().algorithms;
  RunOptions wish = normalized_options(!GetParam(), AlgorithmPreference::kPerformance);
  wish.recorded_algorithms = whole;
  EXPECT_NO_THROW(plan_run(normalized_network(kBatch), wish));
  for (const auto& [op, algorithm] : whole) {
    wish.recorded_algorithms = whole;
    wish.recorded_algorithms.erase(op);
    EXPECT_THROW(plan_run(normalized_network(kBatch), wish), InvalidArgument) << op;
  }
  wish.recorded_algorithms = whole;
  wish.recorded_algorithms["conv8.forward"] = "direct";
  EXPECT_THROW(plan_run(normalized_network(kBatch), wish), InvalidArgument);
}

// --- memory ------------------------------------------------------------------------------------------------

// Every rank measures the maximum over the ranks of the memory that joining them needs. Plans leave room for
// it.
TEST(DataParallel, WhatJoinsRanksIsMeasuredByJoiningThem) {
  testing::run_ranks(3, [](ProcessGroup& group) {
    const auto device = make_cpu_device({});
    const std::uint64_t bytes = measure_communicator(*device, std::nullopt, group);
    EXPECT_EQ(bytes, group.communicator(*device)->library_bytes());
    EXPECT_GT(bytes, 0U);
  });
}

// --- failures ------------------------------------------------------------------------------------

TEST(DataParallel, ARankThatFailsBreaksTheOthersOff) {
  const PlannedRun run = planned(Policy::kOffloadNone, kMomentum, {.ranks = 3});
  const DatasetSplits data = testing::data_for(run, "synthetic");
  const auto said = testing::outcomes_of_ranks(3, [&](ProcessGroup& group) {
    Trainer trainer(run, data, training(&group));
    trainer.train([&](const StepReport& report) {
      if (group.rank() == 1 && report.step == 4) {
        throw std::runtime_error("out of luck");
      }
    });
  });
  EXPECT_EQ(said[1], "out of luck");
  EXPECT_THAT(said[0], HasSubstr("rank 1"));
  EXPECT_THAT(said[2], HasSubstr("rank 1"));
}

TEST(DataParallel, TrainersOfSeveralRanksWantTheirProcesses) {
  const PlannedRun run = planned(Policy::kOffloadNone, kMomentum, {.ranks = 2});
  const DatasetSplits data = testing::data_for(run, "synthetic");
  EXPECT_THROW(Trainer(run, data, training()), InvalidArgument);
  testing::run_ranks(3, [&](ProcessGroup& group) {
    EXPECT_THROW(Trainer(run, data, training(&group)), InvalidArgument) << group.rank();
  });
}

}  // namespace
}  // namespace vdnn::data_parallel_test
