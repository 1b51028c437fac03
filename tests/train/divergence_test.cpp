// Training runs that diverge: the error names the step, no rank saves anything after that step, and
// find_nonfinite() finds the first value that is not finite. The tests plant such a value in the data or in a
// layer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "tests/fakes/thread_ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"
#include "vdnn/nonfinite.h"
#include "vdnn/session.h"
#include "vdnn/trainer.h"

namespace vdnn::divergence_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kClasses = 3;
constexpr std::uint64_t kSteps = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Random images. From some epoch on, one image has an element that is not finite.
class Planted : public Dataset {
 public:
  // All samples are finite.
  explicit Planted(std::uint64_t samples) : samples_(samples) {}
  Planted(std::uint64_t samples, SampleKey bad) : samples_(samples), bad_(bad) {}

  static constexpr std::size_t kElement = 5;  // position in the image of the element that is not finite

  std::uint64_t size() const override { return samples_; }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return kClasses; }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    SplitMix64 random(key.index + 1);
    for (float& value : image) {
      value = random.symmetric();
    }
    if (bad_ && key.index == bad_->index && key.epoch >= bad_->epoch) {
      image[kElement] = kInfinity;
    }
    targets[0] = static_cast<std::int32_t>(key.index % kClasses);
  }

 private:
  std::uint64_t samples_;
  std::optional<SampleKey> bad_;
  Dims dims_{2, 6, 6};
  Dims target_dims_;
};

DatasetSplits planted(std::uint64_t samples, SampleKey bad) {
  return {.training = std::make_unique<Planted>(samples, bad), .test = nullptr};
}
DatasetSplits sound(std::uint64_t samples) {
  return {.training = std::make_unique<Planted>(samples), .test = nullptr};
}

// The identity, except for one element of one pass of one step.
class Spoiling : public CustomLayer {
 public:
  Spoiling(Direction direction, std::uint64_t step, float value, std::size_t element)
      : direction_(direction), step_(step), value_(value), element_(element) {}

  std::string kind() const override { return "spoiling"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override {
    using enum OperandRole;
    LayerRecipe recipe;
    recipe.forward = {pass(Direction::kForward, {kInput, 0}, {kOutput, 0})};
    if (question.mode == Mode::kTraining) {
      recipe.backward = {pass(Direction::kBackwardData, {kOutputGradient, 0}, {kInputGradient, 0})};
    }
    return recipe;
  }
  void run(const CustomLaunch& launch) const override {
    const std::size_t elements = launch.output.elements();
    const std::span to(pointer_to<float>(launch.operands.writes[0].begin), elements);
    std::copy_n(pointer_to<const float>(launch.operands.reads[0].begin), elements, to.begin());
    if (launch.direction == direction_ && launch.scalars.step + 1 == step_) {
      to[element_] = value_;
    }
  }

 private:
  static OpRecipe pass(Direction direction, Operand read, Operand write) {
    return {.direction = direction,
            .reads = {read},
            .writes = {write},
            .may_overwrite = {},
            .algorithms = {{.name = "copy"}},
            .cost = {}};
  }

  Direction direction_;
  std::uint64_t step_;
  float value_;
  std::size_t element_;
};

// Has `layer`, if given, between the convolution and the classifier.
Network network(const std::shared_ptr<const CustomLayer>& layer = {}) {
  NetworkBuilder net("small", {kBatch, 2, 6, 6});
  Tensor x = net.convolution("conv", net.input(),
                             {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = net.batch_normalization("norm", x);
  if (layer) {
    x = net.custom("spoiling", {x}, layer);
  }
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = kClasses}));
  return std::move(net).build();
}

RunOptions options(Policy policy = Policy::kOffloadAll) {
  return {.device = "cpu",
          .memory_bytes = std::uint64_t{64} << 20,
          .host_memory_bytes = std::uint64_t{64} << 20,
          .threads = 1,
          .policy = policy,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F}}};
}

// Returns the step that the error of `train` names.
template <class Train>
std::uint64_t diverged_step(const Train& train, const std::string& text) {
  try {
    train();
  } catch (const Diverged& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
    return error.step();
  }
  ADD_FAILURE() << "it did not diverge";
  return 0;
}

class Divergence : public testing::TemporaryDirectory {
 protected:
  std::filesystem::path path() const { return directory_ / "checkpoint"; }

  // Saves after every `every` steps and remembers the last checkpoint.
  TrainOptions saving(std::uint64_t every) {
    return {.learning_rate = 0.01,
            .steps = kSteps,
            .save =
                [this](Session& session) {
                  save_checkpoint(path(), session);
                  saved_ = read("checkpoint");
                  saved_step_ = session.steps();
                },
            .save_every = every};
  }

  std::string saved_;
  std::uint64_t saved_step_ = 0;
};

class DivergencePolicies : public Divergence, public ::testing::WithParamInterface<Policy> {};
INSTANTIATE_TEST_SUITE_P(All, DivergencePolicies,
                         ::testing::Values(Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv,
                                           Policy::kOffloadAll, Policy::kOptimal),
                         [](const auto& test) { return to_string(test.param); });

// Three steps per epoch; in the second epoch, one of twelve samples is bad.
std::uint64_t step_of_sample(const PlannedRun& run, SampleKey bad, std::uint64_t seed = 1) {
  const BatchOrder order{
      .samples = 12, .batch = static_cast<std::int64_t>(run.global_batch()), .shuffle = true, .seed = seed};
  for (std::uint64_t number = 0;; ++number) {
    const std::vector<std::uint64_t> indices = order.indices(number);
    if (order.epoch(number) >= bad.epoch && std::ranges::count(indices, bad.index) > 0) {
      return number + 1;
    }
  }
}

// Regression: training continued, and NaN weights replaced the checkpoint.
TEST_P(DivergencePolicies, NamesTheStepAndLeavesTheCheckpoint) {
  const SampleKey bad{.index = 7, .epoch = 1};
  const PlannedRun run = plan_run(network(), options(GetParam()));
  const std::uint64_t step = step_of_sample(run, bad);
  const DatasetSplits data = planted(12, bad);
  std::uint64_t reported = 0;
  EXPECT_EQ(
      diverged_step(
          [&] {
            Trainer(run, data, saving(1)).train([&](const StepReport& report) { reported = report.step; });
          },
          "step " + std::to_string(step) + " has diverged: its loss is nan"),
      step);
  EXPECT_EQ(reported, step - 1);
  EXPECT_EQ(saved_step_, step - 1);
  EXPECT_EQ(read("checkpoint"), saved_);
  EXPECT_EQ(Checkpoint(path()).info().step, step - 1);
}

TEST_P(DivergencePolicies, FindsTheInputThatIsNotFinite) {
  const SampleKey bad{.index = 7, .epoch = 1};
  const PlannedRun run = plan_run(network(), options(GetParam()));
  const std::uint64_t step = step_of_sample(run, bad);
  const DatasetSplits data = planted(12, bad);
  for (const std::uint64_t every : {std::uint64_t{0}, std::uint64_t{2}}) {
    TrainOptions once = saving(every);
    diverged_step([&] { Trainer(run, data, once).train({}); }, "");
    if (every > 0) {
      once.start = Checkpoint(path()).state(run);
    }
    const std::optional<NonfiniteValue> found = find_nonfinite(run, data, once, step);
    ASSERT_TRUE(found);
    const std::vector<std::uint64_t> indices =
        BatchOrder{.samples = 12, .batch = kBatch, .shuffle = true, .seed = 1}.indices(step - 1);
    const auto place = static_cast<std::uint64_t>(std::ranges::find(indices, bad.index) - indices.begin());
    EXPECT_EQ(found->step, step);
    EXPECT_EQ(found->op, "");
    EXPECT_EQ(found->value, "images");
    EXPECT_EQ(found->elements, std::uint64_t{kBatch} * 2 * 6 * 6);
    EXPECT_EQ(found->nonfinite, 1U);
    EXPECT_EQ(found->first, place * 2 * 6 * 6 + Planted::kElement);
    EXPECT_EQ(found->first_value, kInfinity);
  }
}

TEST_P(DivergencePolicies, FindsTheOpThatMadeTheFirst) {
  for (const Direction direction : {Direction::kForward, Direction::kBackwardData}) {
    const bool forward = direction == Direction::kForward;
    const PlannedRun run =
        plan_run(network(std::make_shared<Spoiling>(direction, 3, kNan, 11)), options(GetParam()));
    const DatasetSplits data = sound(12);
    const TrainOptions training{.learning_rate = 0.01, .steps = kSteps};
    // A gradient that is not finite shows in the next loss.
    EXPECT_EQ(diverged_step([&] { Trainer(run, data, training).train({}); }, "loss is nan"), forward ? 3 : 4);
    const std::optional<NonfiniteValue> found = find_nonfinite(run, data, training, forward ? 3 : 4);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 3U);
    EXPECT_EQ(found->op, forward ? "spoiling.forward" : "spoiling.backward_data");
    EXPECT_EQ(found->value, forward ? "spoiling.y" : "norm.y.gradient");
    EXPECT_EQ(found->nonfinite, 1U);
    EXPECT_EQ(found->first, 11U);
    EXPECT_FALSE(found->rank);
    EXPECT_THAT(describe(*found),
                AllOf(HasSubstr("step 3, op " + found->op + ": " + found->value + " (4x4x6x6)"),
                      HasSubstr("1 of 576, the first at 11: nan")));
  }
}

// The update overflows although the loss of its step is finite; only the next loss would show the overflow.
TEST_P(DivergencePolicies, AnUpdateThatIsNotFiniteIsNotSaved) {
  const PlannedRun run =
      plan_run(network(std::make_shared<Spoiling>(Direction::kBackwardData, kSteps, kInfinity, 0)),
               options(GetParam()));
  const DatasetSplits data = sound(12);
  EXPECT_EQ(diverged_step([&] { Trainer(run, data, saving(3)).train({}); }, "after step 8 \"conv.filter\""),
            kSteps);
  EXPECT_EQ(saved_step_, 6U);
  EXPECT_EQ(read("checkpoint"), saved_);
  TrainOptions again = saving(0);
  again.start = Checkpoint(path()).state(run);
  const std::optional<NonfiniteValue> found = find_nonfinite(run, data, again, kSteps);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, kSteps);
  EXPECT_EQ(found->op, "spoiling.backward_data");
}

// Regression: the norm was not checked, and only the next step reported the divergence.
TEST_P(DivergencePolicies, ANormOfGradientsThatIsNotFiniteCounts) {
  RunOptions clipped = options(GetParam());
  clipped.training.clip_norm = 1;
  const PlannedRun run =
      plan_run(network(std::make_shared<Spoiling>(Direction::kBackwardData, 5, kInfinity, 0)), clipped);
  const DatasetSplits data = sound(12);
  EXPECT_EQ(diverged_step([&] { Trainer(run, data, saving(1)).train({}); },
                          "step 5 has diverged: the norm of its gradients is"),
            5U);
  EXPECT_EQ(saved_step_, 4U);
}

TEST_F(Divergence, TheNormOfGradientsIsThatOfWhatTheHostIsGiven) {
  RunOptions clipped = options();
  clipped.training.clip_norm = 0.01F;
  clipped.training.micro_steps = 2;
  clipped.training.results = {"fc.filter.gradient", "fc.bias.gradient",    "conv.filter.gradient",
                              "conv.bias.gradient", "norm.scale.gradient", "norm.shift.gradient"};
  RunOptions single = clipped;
  single.training.micro_steps = 1;
  const Planted data(12);
  std::vector<float> images(static_cast<std::size_t>(kBatch) * 2 * 6 * 6);
  std::vector<std::int32_t> targets(kBatch);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    data.read({.index = i}, std::span(images).subspan(i * 72, 72), std::span(targets).subspan(i, 1));
  }
  const auto inputs = {std::as_bytes(std::span(images)), std::as_bytes(std::span(targets))};
  Session session(plan_run(network(), single));
  const StepMetrics metrics = session.step(inputs, 0.01F);
  double sum = 0;
  for (const std::string& name : single.training.results) {
    for (const float value : session.result(name)) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  ASSERT_TRUE(metrics.gradient_norm);
  EXPECT_NEAR(static_cast<double>(*metrics.gradient_norm), std::sqrt(sum), 1e-5 * std::sqrt(sum));

  Session accumulating(plan_run(network(), clipped));
  EXPECT_FALSE(accumulating.step(inputs, 0.01F).gradient_norm) << "no update";
  EXPECT_TRUE(accumulating.step(inputs, 0.01F).gradient_norm);
  EXPECT_FALSE(Session(plan_run(network(), options())).step(inputs, 0.01F).gradient_norm) << "not clipped";
}

TEST_F(Divergence, ATrainingMayGoOn) {
  const PlannedRun run = plan_run(network(), options());
  TrainOptions training{.learning_rate = 0.01, .steps = kSteps, .allow_nonfinite = true};
  const TrainingResult result = Trainer(run, planted(12, {.index = 7, .epoch = 1}), training).train({});
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_TRUE(std::isnan(result.loss));
}

// The trainer reads losses one step late, and sums them over micro-steps. Between a step and the reading of
// its loss, it must save nothing.
TEST_F(Divergence, NothingIsSavedInBetweenWhateverElseTheTrainingDoes) {
  const SampleKey bad{.index = 7, .epoch = 8};
  for (const std::uint32_t micro_steps : {1U, 3U}) {
    RunOptions planned = options();
    planned.training.micro_steps = micro_steps;
    const PlannedRun run = plan_run(network(), planned);
    const std::uint64_t step = step_of_sample(run, bad);
    const DatasetSplits data = planted(12, bad);
    TrainOptions on_request = saving(0);
    on_request.request = [] { return TrainingRequest::kSave; };
    TrainOptions stopped = saving(1);
    stopped.request = [&, calls = std::uint64_t{0}]() mutable {
      return ++calls == step ? TrainingRequest::kStop : TrainingRequest::kNothing;
    };
    TrainOptions traced = on_request;
    traced.trace = true;
    TrainOptions replanned = on_request;
    replanned.replan = ReplanRule{.after_steps = kFewestReplanSteps, .repeatedly = true};
    replanned.learn = true;
    TrainOptions epochs = saving(1);
    epochs.steps = 0;
    epochs.epochs = 9;
    for (TrainOptions training : {saving(1), on_request, stopped, traced, replanned, epochs}) {
      training.steps = training.epochs > 0 ? 0 : step + 2;
      saved_step_ = 0;
      EXPECT_EQ(diverged_step([&] { Trainer(run, data, training).train({}); }, "loss is nan"), step);
      EXPECT_EQ(saved_step_, step - 1);
      EXPECT_EQ(read("checkpoint"), saved_);
      const std::optional<NonfiniteValue> found = find_nonfinite(run, data, training, step);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->step, step);
      EXPECT_EQ(found->value, "images");
    }
  }
}

// --- states ------------------------------------------------------------------------------------------------

TEST_F(Divergence, NoTensorOfACheckpointIsReplacedByOneThatIsNotFinite) {
  const PlannedRun run = plan_run(network(), options());
  Session session(run, {});
  const TrainingState good = session.state();
  save_checkpoint(path(), session);
  const std::string before = read("checkpoint");
  for (const auto list : {&TrainingState::parameters, &TrainingState::optimizer}) {
    for (std::size_t i = 0; i < (good.*list).size(); ++i) {
      TrainingState state = good;
      state.step = 17;
      std::vector<float>& values = (state.*list)[i].values;
      values.back() = -kInfinity;
      const std::string name = (good.*list)[i].name;
      session.restore(state);
      EXPECT_THAT(([&] { save_checkpoint(path(), session); }),
                  ThrowsMessage<Diverged>(AllOf(HasSubstr("after step 17"), HasSubstr('"' + name + '"'),
                                                HasSubstr("1 of " + std::to_string(values.size())),
                                                HasSubstr("-inf"), HasSubstr(path().string()))));
      EXPECT_EQ(read("checkpoint"), before);
    }
  }
  save_checkpoint(path(), session, {.allow_nonfinite = true});
  EXPECT_EQ(Checkpoint(path()).info().step, 17U);
}

TEST_F(Divergence, AStateThatIsNotFiniteIsFoundBeforeItsSteps) {
  const PlannedRun run = plan_run(network(), options());
  TrainOptions training{.learning_rate = 0.01, .steps = kSteps};
  training.start = Session(run, {}).state();
  training.start->step = 2;
  training.start->parameters[0].values[3] = kNan;
  const std::optional<NonfiniteValue> found = find_nonfinite(run, sound(12), training, 3);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 2U);
  EXPECT_EQ(found->op, "");
  EXPECT_EQ(found->value, "conv.filter");
  EXPECT_EQ(found->first, 3U);
}

TEST_F(Divergence, WhereAllIsFiniteNothingIsFoundAndTheBitsAreTheSame) {
  const PlannedRun run = plan_run(network(), options());
  const DatasetSplits data = sound(12);
  TrainOptions training{.learning_rate = 0.01, .steps = kSteps};
  EXPECT_FALSE(find_nonfinite(run, data, training, kSteps));
  const std::string weights = Trainer(run, data, training).train({}).weights_sha256;
  training.session.inspect = [](const MadeValue&, const StepScalars&) {};
  EXPECT_EQ(Trainer(run, data, training).train({}).weights_sha256, weights);
  EXPECT_THROW(find_nonfinite(run, data, training, 0), InvalidArgument);
}

// --- ranks -------------------------------------------------------------------------------------------------

class DivergenceOfRanks : public Divergence {
 protected:
  static constexpr int kRanks = 2;

  static RunOptions of_ranks() {
    RunOptions result = options();
    result.training.ranks = kRanks;
    result.training.clip_norm = 1;
    return result;
  }
  static TrainOptions training(ProcessGroup& group) {
    return {.learning_rate = 0.01, .steps = kSteps, .processes = &group};
  }
};

// One rank has the bad sample. All ranks end with the same step and know that rank.
TEST_F(DivergenceOfRanks, AllEndWithTheSameStepAndFindTheSame) {
  const SampleKey bad{.index = 7, .epoch = 1};
  const PlannedRun run = plan_run(network(), of_ranks());
  const std::uint64_t step = step_of_sample(run, bad);
  const std::vector<std::uint64_t> indices =
      BatchOrder{.samples = 12, .batch = kRanks * kBatch, .shuffle = true, .seed = 1}.indices(step - 1);
  const auto place = std::ranges::find(indices, bad.index) - indices.begin();
  const DatasetSplits data = planted(12, bad);
  std::vector<std::uint64_t> saved(kRanks);
  testing::run_ranks(kRanks, [&](ProcessGroup& group) {
    TrainOptions saves = training(group);
    saves.save = [&](Session& session) { saved[static_cast<std::size_t>(group.rank())] = session.steps(); };
    saves.save_every = 1;
    EXPECT_EQ(diverged_step([&] { Trainer(run, data, saves).train({}); }, "loss is nan"), step);
    const std::optional<NonfiniteValue> found = find_nonfinite(run, data, saves, step);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, step);
    EXPECT_EQ(found->value, "images");
    EXPECT_EQ(found->rank, static_cast<int>(place / kBatch));
    EXPECT_EQ(found->first, static_cast<std::uint64_t>(place % kBatch) * 72 + Planted::kElement);
  });
  EXPECT_THAT(saved, Each(step - 1));
}

// One rank writes the checkpoint for all.
TEST_F(DivergenceOfRanks, WhatOneRefusesToSaveEndsAll) {
  const PlannedRun run = plan_run(network(), of_ranks());
  const DatasetSplits data = sound(12);
  testing::run_ranks(kRanks, [&](ProcessGroup& group) {
    TrainOptions saves = training(group);
    saves.save_every = 2;
    saves.save = [&](Session& session) {
      if (group.rank() == 0 && session.steps() == 4) {
        session.set_parameter("norm.running_mean", std::vector<float>(4, kNan));
        save_checkpoint(path(), session);
      }
    };
    EXPECT_EQ(diverged_step([&] { Trainer(run, data, saves).train({}); }, "norm.running_mean"), 4U);
  });
  EXPECT_TRUE(empty());
}

}  // namespace
}  // namespace vdnn::divergence_test
