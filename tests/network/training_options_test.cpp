// Options of training beyond one loss and plain updates: clipping, several losses, results for the host,
// parameters that are not trained. The tests use the catalog of `cpu`. Its recipes have everything that these
// tapes can contain: running statistics of batch normalisation, values that losses save, and Adam's two
// states.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/plan/oracle.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn::testing::training_options_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// One trunk with three heads: one class per image, one label per place, and a probe that only the host reads.
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

  // The error of lowering with this result.
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
  EXPECT_EQ(tape->op(norm).layer, std::nullopt);
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

// Without a norm that waits for all gradients, each update runs as soon as its gradient is ready.
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

// Regression: clipping refused a network that learns nothing, which lowered without clipping (found by seed
// 328 of tests/random).
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

// Two losses of one prediction both contribute to the gradient of the same feature map.
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

TEST_F(TrainingOptionsTest, ResultsAreMetricsThenOutputsThenTheNormThenWhatWasAskedFor) {
  const TapePtr tape = lower({.clip_norm = 1.0F,
                              .results = {"conv.filter.gradient", "map.y", "fc.y", "map_loss.metrics",
                                          "relu.y.gradient", "gradients.norm.value", "fc.y"}});
  EXPECT_THAT(names(*tape, tape->results()),
              ElementsAre("map_loss.metrics", "class_loss.metrics", "probe.y", "map.y",
                          "gradients.norm.value", "conv.filter.gradient", "fc.y", "relu.y.gradient"));
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

// --- parameters that are not trained ---------------------------------------------------------------

TEST_F(TrainingOptionsTest, WhatOnlyTheHostReadsHasNoBackwardPass) {
  for (const TrainingOptions& options : {TrainingOptions{}, TrainingOptions{.clip_norm = 1.0F}}) {
    const TapePtr tape = lower(options);
    EXPECT_THAT(op_names(*tape, Phase::kForward), Contains("probe.forward"));
    for (const Phase phase : {Phase::kBackward, Phase::kUpdate}) {
      EXPECT_THAT(op_names(*tape, phase), Not(Contains(HasSubstr("probe"))));
    }
    for (const Value& value : tape->values()) {
      EXPECT_FALSE(value.name.starts_with("probe") && value.name.ends_with("gradient")) << value.name;
      // Regression: the optimizer kept state for the probe, and that state counted against the budget.
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

// Evaluation reads the running statistics and does not change them.
TEST_F(TrainingOptionsTest, EvaluationWritesNoParameter) {
  const TapePtr tape = lower_to_evaluation_tape(two_heads(), library_->catalog());
  for (const Op& op : tape->ops()) {
    for (const ValueId written : op.writes) {
      EXPECT_FALSE(tape->value(written).persistent()) << op.name;
    }
  }
  EXPECT_EQ(tape->parameters().size(), lower({})->parameters().size());
}

// --- data parallelism ------------------------------------------------------------------------------

// The values that each reducing op reduces, in the order of the ops.
std::vector<std::vector<std::string>> buckets(const Tape& tape) {
  std::vector<std::vector<std::string>> result;
  for (const Op& op : tape.ops()) {
    if (op.collective() && op.phase == Phase::kUpdate) {
      result.push_back(names(tape, op.reads));
    }
  }
  return result;
}

constexpr std::uint64_t kOneBucket = std::uint64_t{1} << 40U;

TEST_F(TrainingOptionsTest, NothingIsReducedOrSummedWhereADeviceTrainsAlone) {
  const TapePtr tape = lower({});
  EXPECT_FALSE(tape->collective());
  for (const TapeParameter& parameter : tape->parameters()) {
    EXPECT_EQ(parameter.gradient_sum, kNone);
  }
}

TEST_F(TrainingOptionsTest, OneBucketHasAllGradientsLastLayersFirst) {
  const TapePtr tape = lower({.ranks = 4, .bucket_bytes = kOneBucket});
  EXPECT_TRUE(tape->collective());
  const auto all = buckets(*tape);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_THAT(all[0], ::testing::UnorderedElementsAreArray(with_suffix(trained(), ".gradient.local")));
  const auto place = [&](const std::string& name) {
    return std::ranges::find(all[0], name + ".gradient.local") - all[0].begin();
  };
  EXPECT_LT(place("fc.filter"), place("map.filter"));
  EXPECT_LT(place("map.filter"), place("norm.scale"));
  EXPECT_LT(place("norm.shift"), place("conv.filter"));
}

// Each bucket except the last reaches the requested size with its last gradient, and not earlier.
TEST_F(TrainingOptionsTest, BucketsAreClosedAsSoonAsTheyAreLargeEnough) {
  for (const std::uint64_t bytes : {1ULL, 500ULL, 2000ULL}) {
    SCOPED_TRACE(bytes);
    const TapePtr tape = lower({.ranks = 2, .bucket_bytes = bytes});
    const auto all = buckets(*tape);
    ASSERT_GT(all.size(), 1U);
    std::multiset<std::string> reduced;
    for (const std::vector<std::string>& bucket : all) {
      std::uint64_t sum = 0;
      for (const std::string& name : bucket) {
        EXPECT_LT(sum, bytes);
        sum += tape->value(value_named(*tape, name)).bytes;
        reduced.insert(name);
      }
      EXPECT_TRUE(sum >= bytes || &bucket == &all.back());
    }
    const auto wanted = with_suffix(trained(), ".gradient.local");
    EXPECT_EQ(reduced, std::multiset<std::string>(wanted.begin(), wanted.end()));
  }
}

// This order lets the reductions overlap the rest of the backward pass.
TEST_F(TrainingOptionsTest, BucketsFollowTheirGradientsAndUpdatesTheBackwardPass) {
  const TapePtr tape = lower({.optimizer = AdamSpec{}, .ranks = 2, .bucket_bytes = 1});
  EXPECT_LT(op_named(*tape, "gradients.reduce0"), op_named(*tape, "conv.backward_filter"));
  OpId last_backward = 0;
  OpId first_update = kNone;
  for (OpId id = 0; id < tape->ops().size(); ++id) {
    const Op& op = tape->op(id);
    if (op.phase == Phase::kBackward) {
      last_backward = id;
    } else if (op.phase == Phase::kUpdate && !op.collective()) {
      first_update = std::min(first_update, id);
    }
    if (op.collective()) {
      ASSERT_EQ(op.reads.size(), op.writes.size());
      for (std::uint32_t i = 0; i < op.writes.size(); ++i) {
        EXPECT_TRUE(std::ranges::any_of(op.may_overwrite, [i](const Overwrite& permission) {
          return permission.write == i && permission.read == i;
        })) << op.name;
      }
    }
  }
  EXPECT_LT(last_backward, first_update);
  for (const std::string& name : trained()) {
    EXPECT_EQ(tape->value(tape->op(op_named(*tape, name + ".update")).reads[1]).name, name + ".gradient");
  }
}

TEST_F(TrainingOptionsTest, MicroStepsSumGradientsInMemoryOfTheirOwn) {
  const TapePtr tape = lower({.optimizer = SgdSpec{.momentum = 0.9F}, .micro_steps = 3});
  EXPECT_FALSE(tape->collective());
  for (const TapeParameter& parameter : tape->parameters()) {
    const Value& value = tape->value(parameter.value);
    if (std::ranges::find(trained(), value.name) == trained().end()) {
      EXPECT_EQ(parameter.gradient_sum, kNone) << value.name;
      continue;
    }
    const Value& sum = tape->value(parameter.gradient_sum);
    EXPECT_EQ(sum.name, value.name + ".gradient_sum");
    EXPECT_EQ(sum.kind, ValueKind::kGradientSum);
    EXPECT_TRUE(sum.persistent());
    EXPECT_EQ(sum.bytes, value.bytes);
    const Op& accumulate = tape->op(op_named(*tape, value.name + ".gradient.accumulate"));
    EXPECT_EQ(accumulate.phase, Phase::kBackward) << "the sum runs in every micro-step";
    EXPECT_THAT(names(*tape, accumulate.reads), ElementsAre(value.name + ".gradient", sum.name));
    EXPECT_THAT(names(*tape, accumulate.writes), ElementsAre(sum.name));
    EXPECT_THAT(names(*tape, tape->op(op_named(*tape, value.name + ".update")).reads),
                ElementsAre(value.name, sum.name, value.name + ".momentum"));
  }
}

// Ranks reduce the sums over their micro-steps in place; no other gradient is left to reduce.
TEST_F(TrainingOptionsTest, RanksWithMicroStepsReduceTheSums) {
  const TapePtr tape = lower({.ranks = 2, .micro_steps = 2, .bucket_bytes = kOneBucket});
  const Op& reduce = tape->op(op_named(*tape, "gradients.reduce0"));
  EXPECT_EQ(reduce.reads, reduce.writes);
  EXPECT_THAT(names(*tape, reduce.reads),
              ::testing::UnorderedElementsAreArray(with_suffix(trained(), ".gradient_sum")));
}

// To send half the bytes, a gradient is narrowed as soon as it is made and widened just before its own
// update.
TEST_F(TrainingOptionsTest, RanksSendGradientsInANarrowTypeOnRequest) {
  const TapePtr tape = lower({.ranks = 2, .bucket_bytes = kOneBucket, .reduce_precision = DataType::kBf16});
  const Op& reduce = tape->op(op_named(*tape, "gradients.reduce0"));
  EXPECT_THAT(names(*tape, reduce.reads),
              ::testing::UnorderedElementsAreArray(with_suffix(trained(), ".gradient.local.bf16")));
  EXPECT_THAT(names(*tape, reduce.writes),
              ::testing::UnorderedElementsAreArray(with_suffix(trained(), ".gradient.bf16")));
  for (const ValueId value : reduce.writes) {
    EXPECT_EQ(tape->value(value).type.data_type, DataType::kBf16);
  }
  for (const std::string& name : trained()) {
    const OpId narrow = op_named(*tape, name + ".gradient.local.to_bf16");
    const OpId producer = tape->producer(tape->find_value(name + ".gradient.local"));
    EXPECT_TRUE(std::all_of(tape->ops().begin() + producer + 1, tape->ops().begin() + narrow,
                            [](const Op& op) { return op.converts_gradient(); }))
        << "at once, among the layer's other gradients";
    const OpId widen = op_named(*tape, name + ".gradient.bf16.to_fp32");
    EXPECT_EQ(widen + 1, op_named(*tape, name + ".update")) << "just before";
    for (const OpId conversion : {narrow, widen}) {
      EXPECT_EQ(tape->op(conversion).phase, Phase::kUpdate);
      EXPECT_FALSE(tape->op(conversion).recorded()) << "a training may continue with another number of ranks";
    }
    const Value& local = tape->value(tape->find_value(name + ".gradient.local"));
    EXPECT_EQ(tape->value(tape->find_value(name + ".gradient.bf16")).bytes, local.bytes / 2);
    EXPECT_EQ(tape->value(tape->op(op_named(*tape, name + ".update")).reads[1]).name, name + ".gradient");
  }
}

// Sums over micro-steps stay fp32, and clipping uses the norm of the gradients that the updates read.
TEST_F(TrainingOptionsTest, NarrowReductionsFollowAccumulationAndPrecedeTheNorm) {
  const TapePtr tape = lower({.clip_norm = 1.0F,
                              .ranks = 2,
                              .micro_steps = 2,
                              .bucket_bytes = kOneBucket,
                              .reduce_precision = DataType::kF16});
  const OpId norm = op_named(*tape, "gradients.norm");
  EXPECT_THAT(names(*tape, tape->op(norm).reads),
              ::testing::UnorderedElementsAreArray(with_suffix(trained(), ".gradient_sum.reduced")));
  for (const std::string& name : trained()) {
    EXPECT_THAT(names(*tape, tape->op(op_named(*tape, name + ".gradient_sum.to_fp16")).reads),
                ElementsAre(name + ".gradient_sum"));
  }
}

TEST_F(TrainingOptionsTest, ARankAloneNarrowsNothing) {
  EXPECT_EQ(lower({.reduce_precision = DataType::kBf16})->ops().size(), lower({})->ops().size());
}

TEST_F(TrainingOptionsTest, RefusesToReduceIntegers) {
  EXPECT_THROW(lower({.ranks = 2, .reduce_precision = DataType::kI32}), InvalidArgument);
}

TEST_F(TrainingOptionsTest, GradientsOfLossesAreDividedByTheNumberOfBatches) {
  const TapePtr tape = lower({.ranks = 4, .micro_steps = 2});
  for (const Op& op : tape->ops()) {
    if (const auto* const loss = std::get_if<SoftmaxCrossEntropySpec>(&op.spec)) {
      EXPECT_EQ(loss->weight, 1.0F / 8) << op.name;
    } else if (const auto* const dice = std::get_if<DiceCrossEntropySpec>(&op.spec)) {
      EXPECT_EQ(dice->weight, 0.5F / 8) << op.name;
    }
  }
  EXPECT_EQ(tape->loss_weight(0), 0.5F) << "the weight of the reported loss does not change";
  EXPECT_EQ(tape->loss_weight(1), 1);
}

TEST_F(TrainingOptionsTest, MetricsOfAllRanksAreSummedInEveryMicroStep) {
  const TapePtr tape = lower({.ranks = 2, .micro_steps = 2});
  const Op& reduce = tape->op(op_named(*tape, "metrics.reduce"));
  EXPECT_NE(reduce.phase, Phase::kUpdate);
  EXPECT_EQ(reduce.layer, std::nullopt);
  EXPECT_THAT(names(*tape, reduce.reads), ElementsAre("map_loss.metrics", "class_loss.metrics"));
  EXPECT_THAT(names(*tape, reduce.writes), ElementsAre("map_loss.metrics.sum", "class_loss.metrics.sum"));
  EXPECT_THAT(names(*tape, tape->results()),
              ElementsAre("map_loss.metrics.sum", "class_loss.metrics.sum", "probe.y", "map.y"));
}

TEST_F(TrainingOptionsTest, RanksAreClippedByTheNormOfTheReducedGradients) {
  const TapePtr tape = lower({.clip_norm = 1.0F, .ranks = 2});
  const OpId norm = op_named(*tape, "gradients.norm");
  EXPECT_THAT(names(*tape, tape->op(norm).reads), with_suffix(trained(), ".gradient"));
  for (OpId id = norm; id < tape->ops().size(); ++id) {
    EXPECT_FALSE(tape->op(id).collective());
  }
}

TEST_F(TrainingOptionsTest, SynchronizedNormalizationMeetsTwiceInForwardAndOnceInBackward) {
  const TapePtr tape = lower({.ranks = 4, .bucket_bytes = kOneBucket, .sync_batch_normalization = true});
  std::vector<std::string> met;
  for (const Op& op : tape->ops()) {
    if (op.collective() && op.phase != Phase::kUpdate && op.name != "metrics.reduce") {
      met.push_back(op.name);
    }
    if (const auto* const spec = std::get_if<BatchNormalizationSpec>(&op.spec)) {
      EXPECT_EQ(spec->ranks, 4U) << op.name;
    }
  }
  EXPECT_THAT(met,
              ElementsAre("norm.forward0.reduce", "norm.forward1.reduce", "norm.backward_filter.reduce"));
  const Op& mean = tape->op(op_named(*tape, "norm.forward0.reduce"));
  EXPECT_EQ(mean.phase, Phase::kForward);
  ASSERT_NE(tape->layer_of(mean), nullptr);
  EXPECT_EQ(tape->layer_of(mean)->name, "norm");
  EXPECT_THAT(names(*tape, mean.reads), ElementsAre("norm.mean.local"));
  EXPECT_THAT(names(*tape, mean.writes), ElementsAre("norm.mean"));
  EXPECT_THAT(names(*tape, tape->op(op_named(*tape, "norm.backward_data")).reads),
              ElementsAre("conv.y", "norm.mean", "norm.variance", "norm.y.gradient", "norm.scale",
                          "norm.gradient_means"));
  for (const char* const means : {"norm.gradient_means.local", "norm.gradient_means"}) {
    EXPECT_EQ(tape->value(tape->find_value(means)).kind, ValueKind::kGradientStatistic) << means;
  }
  // The gradients of scale and shift come from the rank's own batch, so the ranks reduce them like all other
  // gradients.
  const auto all = buckets(*tape);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_THAT(all[0], Contains("norm.scale.gradient.local"));
}

TEST_F(TrainingOptionsTest, SynchronizedNormalizationAloneIsTheOrdinary) {
  const TapePtr tape = lower({.sync_batch_normalization = true});
  EXPECT_FALSE(tape->collective());
  EXPECT_EQ(tape->ops().size(), lower({})->ops().size());
}

TEST_F(TrainingOptionsTest, RefusesNoRanksNoMicroStepsAndBucketsOfNothing) {
  for (const TrainingOptions& options :
       {TrainingOptions{.ranks = 0}, TrainingOptions{.micro_steps = 0}, TrainingOptions{.bucket_bytes = 0}}) {
    EXPECT_THROW(lower(options), InvalidArgument);
  }
}

// An update waits for the reduction of its own gradient, not for later reductions.
TEST_F(TrainingOptionsTest, UpdatesWaitForTheirOwnBucketAlone) {
  const TapePtr tape = lower({.ranks = 2, .bucket_bytes = 1});
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadNone);
  const std::vector<Instruction>& all = schedule.instructions;
  const auto reduced_by = [&](const Wait& wait) {
    const Instruction& it = all[wait.instruction];
    return wait.steps_ago == 0 && it.stream == StreamRole::kReduce ? it.op : kNone;
  };
  std::size_t own = 0;
  OpId waited = 0;  // the last reduction for which the compute stream has waited
  for (const Instruction& it : all) {
    if (it.stream != StreamRole::kCompute || it.kind != InstructionKind::kLaunch) {
      continue;
    }
    for (const Wait& wait : it.waits) {
      const OpId reduce = reduced_by(wait);
      if (reduce == kNone || tape->op(it.op).phase != Phase::kUpdate) {
        continue;
      }
      EXPECT_EQ(reduce, tape->producer(tape->op(it.op).reads[1])) << tape->op(it.op).name;
      waited = std::max(waited, reduce);
      ++own;
    }
    if (tape->op(it.op).phase == Phase::kUpdate) {
      EXPECT_GE(waited, tape->producer(tape->op(it.op).reads[1])) << tape->op(it.op).name;
    }
  }
  EXPECT_GT(own, 1U);
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
          {"ranks", {.optimizer = AdamSpec{}, .ranks = 4, .bucket_bytes = 500, .results = results}},
          {"micro_steps", {.optimizer = SgdSpec{.momentum = 0.9F}, .micro_steps = 3}},
          {"narrow_reductions",
           {.optimizer = AdamSpec{}, .ranks = 4, .bucket_bytes = 500, .reduce_precision = DataType::kBf16}},
          {"narrow_reductions_of_micro_steps",
           {.clip_norm = 1.0F,
            .ranks = 2,
            .micro_steps = 2,
            .bucket_bytes = 500,
            .reduce_precision = DataType::kF16}},
          {"synchronized", {.ranks = 2, .bucket_bytes = 500, .sync_batch_normalization = true}},
          {"ranks_and_micro_steps", {.clip_norm = 1.0F, .ranks = 2, .micro_steps = 2, .bucket_bytes = 500}},
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
}  // namespace vdnn::testing::training_options_test
