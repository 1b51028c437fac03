// What training may be asked for beyond one loss and plain updates: clipping, several losses, results for the
// host, parameters that are not trained. The cpu's catalog is used, whose recipes have all that these tapes
// can contain: batch normalisation moves running statistics, losses save, Adam has two states.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "plan/oracle.h"
#include "plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// One trunk, a class for each image and a label for each place, and a probe that only the host looks at.
Network two_heads() {
  NetworkBuilder net("two heads", {2, 3, 8, 8});
  const Tensor trunk = net.relu(
      "relu", net.batch_normalization("norm", net.convolution("conv", net.input(), same_convolution(4))));
  net.output(net.convolution("probe", trunk, same_convolution(2)));
  const Tensor map = net.convolution("map", trunk, same_convolution(3));
  net.output(map);
  const Tensor labels = net.target("labels", {.data_type = DataType::kI32, .dims = {2, 8, 8}});
  net.dice_cross_entropy("map_loss", map, {.weight = 0.5F}, labels);
  net.softmax_cross_entropy("class_loss", net.fully_connected("fc", trunk, {.outputs = 10}));
  return std::move(net).build();
}

class TrainingOptionsTest : public ::testing::Test {
 protected:
  TapePtr lower(const TrainingOptions& options) const {
    return lower_to_tape(two_heads(), library_->catalog(), options);
  }

  // What lowering says against these results.
  std::string objection(const std::string& result) const {
    try {
      lower({.results = {result}});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  }

  std::unique_ptr<OpLibrary> library_ = make_cpu_ops({});
};

std::vector<std::string> names(const Tape& tape, std::span<const ValueId> values) {
  std::vector<std::string> result;
  std::ranges::transform(values, std::back_inserter(result),
                         [&tape](ValueId id) { return tape.value(id).name; });
  return result;
}

std::vector<std::string> op_names(const Tape& tape, Phase phase) {
  std::vector<std::string> result;
  for (const Op& op : tape.ops()) {
    if (op.phase == phase) {
      result.push_back(op.name);
    }
  }
  return result;
}

const std::vector<std::string>& trained() {
  static const std::vector<std::string> kNames{"conv.filter", "conv.bias", "norm.scale", "norm.shift",
                                               "map.filter",  "map.bias",  "fc.filter",  "fc.bias"};
  return kNames;
}

std::vector<std::string> with_suffix(std::vector<std::string> all, const std::string& suffix) {
  std::ranges::for_each(all, [&suffix](std::string& name) { name += suffix; });
  return all;
}

// --- clipping --------------------------------------------------------------------------------------

TEST_F(TrainingOptionsTest, ClippedUpdatesFollowTheNormOfAllGradients) {
  const TapePtr tape = lower({.optimizer = AdamSpec{}, .clip_norm = 0.25F});
  const OpId norm = op_named(*tape, "gradients.norm");
  EXPECT_EQ(std::get<GradientNormSpec>(tape->op(norm).spec).max_norm, 0.25F);
  EXPECT_THAT(names(*tape, tape->op(norm).reads), with_suffix(trained(), ".gradient"));
  ASSERT_EQ(tape->op(norm).writes.size(), 1U);
  const ValueId value = tape->op(norm).writes[0];
  EXPECT_EQ(tape->value(value).kind, ValueKind::kGradientNorm);
  EXPECT_EQ(tape->value(value).bytes, 2 * sizeof(float));

  std::set<std::string> updated;
  for (OpId id = 0; id < tape->ops().size(); ++id) {
    const Op& op = tape->op(id);
    if (id <= norm) {
      EXPECT_TRUE(id == norm || op.phase != Phase::kUpdate) << op.name;
    } else {
      EXPECT_EQ(op.phase, Phase::kUpdate) << op.name;
      EXPECT_EQ(op.reads.back(), value) << op.name;
      updated.insert(tape->value(op.reads[0]).name);
    }
  }
  EXPECT_EQ(updated, std::set<std::string>(trained().begin(), trained().end()));
}

// Gradients do not pile up where nothing waits for all of them.
TEST_F(TrainingOptionsTest, WithoutClippingUpdatesStandAmongTheBackwardOps) {
  const TapePtr tape = lower({.optimizer = AdamSpec{}});
  EXPECT_EQ(tape->find_value("gradients.norm.value"), kNone);
  EXPECT_LT(op_named(*tape, "fc.filter.update"), op_named(*tape, "conv.backward_filter"));
  for (const std::string& name : trained()) {
    const Op& update = tape->op(op_named(*tape, name + ".update"));
    EXPECT_THAT(names(*tape, update.reads),
                ElementsAre(name, name + ".gradient", name + ".first_moment", name + ".second_moment"));
    EXPECT_THAT(names(*tape, update.writes),
                ElementsAre(name, name + ".first_moment", name + ".second_moment"));
  }
}

// Such a network lowered without clipping and was refused with it (found by seed 328 of tests/random).
TEST_F(TrainingOptionsTest, WhereNothingIsLearnedThereIsNothingToClip) {
  NetworkBuilder net("nothing to learn", {2, 3, 8, 8});
  net.mean_squared_error("error", net.sigmoid("sigmoid", net.input()));
  const TapePtr tape =
      lower_to_tape(std::move(net).build(), library_->catalog(), TrainingOptions{.clip_norm = 1.0F});
  EXPECT_THAT(op_names(*tape, Phase::kUpdate), IsEmpty());
}

TEST_F(TrainingOptionsTest, RefusesANormThatIsNotPositive) {
  for (const float norm : {0.0F, -1.0F, NAN, INFINITY}) {
    EXPECT_THROW(lower({.clip_norm = norm}), InvalidArgument) << norm;
  }
}

// --- losses ----------------------------------------------------------------------------------------

TEST_F(TrainingOptionsTest, GradientsOfAllLossesAreAdded) {
  const TapePtr tape = lower({});
  ASSERT_EQ(tape->losses(), 2U);
  EXPECT_EQ(tape->loss_weight(0), 0.5F);
  EXPECT_EQ(tape->loss_weight(1), 1);
  EXPECT_THAT(names(*tape, tape->inputs()), ElementsAre("images", "labels", "targets"));

  EXPECT_THAT(names(*tape, tape->op(op_named(*tape, "map_loss.backward_data")).writes),
              ElementsAre("map.y.gradient"));
  EXPECT_THAT(names(*tape, tape->op(op_named(*tape, "class_loss.backward_data")).writes),
              ElementsAre("fc.y.gradient"));
  const Op& sum = tape->op(op_named(*tape, "relu.y.accumulate1"));
  EXPECT_THAT(names(*tape, sum.reads), ElementsAre("relu.y.gradient.fc", "relu.y.gradient.map"));
  EXPECT_THAT(names(*tape, sum.writes), ElementsAre("relu.y.gradient"));
}

// Two losses of one prediction: their gradients are of the same feature map.
TEST_F(TrainingOptionsTest, LossesMayShareAPrediction) {
  NetworkBuilder net("shared", {2, 3, 8, 8});
  const Tensor x = net.fully_connected("fc", net.input(), {.outputs = 10});
  net.softmax_cross_entropy("first", x, {.weight = 2});
  const Tensor wanted = net.target("wanted", {.dims = {2, 10}});
  net.mean_squared_error("second", x, {.weight = 3}, wanted);
  const TapePtr tape = lower_to_tape(std::move(net).build(), library_->catalog(), {});
  EXPECT_THAT(names(*tape, tape->op(op_named(*tape, "fc.y.accumulate1")).reads),
              ElementsAre("fc.y.gradient.second", "fc.y.gradient.first"));
  EXPECT_THAT(names(*tape, tape->results()), ElementsAre("first.metrics", "second.metrics"));
  EXPECT_EQ(tape->loss_weight(0), 2);
  EXPECT_EQ(tape->loss_weight(1), 3);
}

// --- results ---------------------------------------------------------------------------------------

TEST_F(TrainingOptionsTest, ResultsAreMetricsThenOutputsThenWhatWasAskedFor) {
  const TapePtr tape = lower({.clip_norm = 1.0F,
                              .results = {"conv.filter.gradient", "map.y", "fc.y", "map_loss.metrics",
                                          "relu.y.gradient", "gradients.norm.value", "fc.y"}});
  EXPECT_THAT(names(*tape, tape->results()),
              ElementsAre("map_loss.metrics", "class_loss.metrics", "probe.y", "map.y",
                          "conv.filter.gradient", "fc.y", "relu.y.gradient", "gradients.norm.value"));
}

TEST_F(TrainingOptionsTest, EvaluationGivesMetricsAndOutputs) {
  const TapePtr tape = lower_to_evaluation_tape(two_heads(), library_->catalog());
  EXPECT_THAT(names(*tape, tape->results()),
              ElementsAre("map_loss.metrics", "class_loss.metrics", "probe.y", "map.y"));
  ASSERT_EQ(tape->losses(), 2U);
  EXPECT_EQ(tape->loss_weight(0), 0.5F);
}

TEST_F(TrainingOptionsTest, RefusesResultsThatNoStepMakes) {
  for (const std::string name : {"nothing.y", "conv.filter", "fc.bias.momentum", "norm.running_mean",
                                 "images", "labels", "probe.filter.gradient", ""}) {
    EXPECT_THAT(objection(name), HasSubstr("'" + name + "'"));
  }
}

// --- what is not trained ---------------------------------------------------------------------------

TEST_F(TrainingOptionsTest, WhatOnlyTheHostReadsHasNoBackwardPass) {
  for (const TrainingOptions& options : {TrainingOptions{}, TrainingOptions{.clip_norm = 1.0F}}) {
    const TapePtr tape = lower(options);
    EXPECT_THAT(op_names(*tape, Phase::kForward), Contains("probe.forward"));
    for (const Phase phase : {Phase::kBackward, Phase::kUpdate}) {
      EXPECT_THAT(op_names(*tape, phase), Not(Contains(HasSubstr("probe"))));
    }
    for (const Value& value : tape->values()) {
      EXPECT_FALSE(value.name.starts_with("probe") && value.name.ends_with("gradient")) << value.name;
      // Failed before: the optimizer kept state for it, which counted against the budget.
      EXPECT_FALSE(value.name.starts_with("probe") && value.kind == ValueKind::kOptimizerState) << value.name;
    }
  }
}

TEST_F(TrainingOptionsTest, RunningStatisticsFollowTheForwardPassAndAreNotTrained) {
  const TapePtr tape = lower({.optimizer = AdamSpec{}});
  std::vector<std::string> not_trained;
  for (const TapeParameter& parameter : tape->parameters()) {
    if (parameter.recipe.trainable) {
      const bool reaches_a_loss = !tape->value(parameter.value).name.starts_with("probe");
      EXPECT_EQ(parameter.state.size(), reaches_a_loss ? 2U : 0U);
      continue;
    }
    const std::string& name = tape->value(parameter.value).name;
    not_trained.push_back(name);
    EXPECT_THAT(parameter.state, IsEmpty());
    EXPECT_EQ(tape->find_value(name + ".gradient"), kNone);
    EXPECT_THAT(op_names(*tape, Phase::kUpdate), Not(Contains(name + ".update")));
    const bool written = std::ranges::any_of(tape->ops(), [&](const Op& op) {
      return op.phase == Phase::kForward && std::ranges::find(op.writes, parameter.value) != op.writes.end();
    });
    EXPECT_TRUE(written) << name;
  }
  EXPECT_THAT(not_trained, ElementsAre("norm.running_mean", "norm.running_variance"));
}

// Evaluation reads the statistics and leaves them alone.
TEST_F(TrainingOptionsTest, EvaluationWritesNoParameter) {
  const TapePtr tape = lower_to_evaluation_tape(two_heads(), library_->catalog());
  for (const Op& op : tape->ops()) {
    for (const ValueId written : op.writes) {
      EXPECT_FALSE(tape->value(written).persistent()) << op.name;
    }
  }
  EXPECT_EQ(tape->parameters().size(), lower({})->parameters().size());
}

// --- schedules -------------------------------------------------------------------------------------

struct Variant {
  std::string name;
  TrainingOptions options;
};

std::vector<Variant> variants() {
  const std::vector<std::string> results{
      "relu.y",           "conv.y.gradient",       "map.y.gradient", "fc.y", "conv.filter.gradient",
      "fc.bias.gradient", "map_loss.probabilities"};
  std::vector<std::string> with_norm = results;
  with_norm.emplace_back("gradients.norm.value");
  return {{"sgd", {.optimizer = SgdSpec{.momentum = 0.9F}}},
          {"adam", {.optimizer = AdamSpec{}}},
          {"clipped", {.optimizer = AdamSpec{}, .clip_norm = 1.0F}},
          {"results", {.optimizer = SgdSpec{}, .results = results}},
          {"clipped_results", {.optimizer = AdamSpec{}, .clip_norm = 1.0F, .results = with_norm}}};
}

class TrainingOptionsSchedule : public ::testing::TestWithParam<Variant> {};

TEST_P(TrainingOptionsSchedule, IsRightUnderEveryPolicy) {
  const auto library = make_cpu_ops({});
  const TapePtr tape = lower_to_tape(two_heads(), library->catalog(), GetParam().options);
  for (const Subject& subject : subjects_of(GetParam().name, tape)) {
    EXPECT_THAT(check_schedule(*tape, subject.schedule), IsEmpty()) << subject.name;
    EXPECT_EQ(Oracle(*tape, subject.schedule).objection(subject.schedule, Exploration::kEverything), "")
        << subject.name;
    std::vector<ValueId> read;
    for (const Instruction& it : subject.schedule.instructions) {
      if (it.kind == InstructionKind::kReadResult) {
        read.push_back(it.value);
      }
    }
    EXPECT_THAT(read, ::testing::UnorderedElementsAreArray(tape->results())) << subject.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, TrainingOptionsSchedule, ::testing::ValuesIn(variants()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace vdnn::testing
