#include "vdnn/tape.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {
namespace {

enum : ValueId {
  kImages,
  kTargets,
  kWeights,
  kMomentum,
  kY,
  kMetrics,
  kYGradient,
  kWeightsGradient,
  kValues
};
enum : OpId { kForward, kLoss, kBackwardData, kBackwardFilter, kUpdate };

Op make_op(std::string name, Phase phase, std::vector<ValueId> reads, std::vector<ValueId> writes) {
  Op op;
  op.name = std::move(name);
  op.layer = 0;
  op.phase = phase;
  op.spec = ReluSpec{};
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.algorithms = {{"only", 0}};
  return op;
}

Value make_value(std::string name, ValueKind kind, std::uint64_t bytes) {
  return {std::move(name), kind, {.dims = {1}}, bytes};
}

// One layer with a parameter, and a loss.
Tape::Parts sound_parts() {
  Tape::Parts parts;
  parts.model = "small";
  parts.values = {make_value("images", ValueKind::kInput, 100),
                  make_value("targets", ValueKind::kTarget, 10),
                  make_value("fc.filter", ValueKind::kParameter, 40),
                  make_value("fc.filter.momentum", ValueKind::kOptimizerState, 40),
                  make_value("fc.y", ValueKind::kFeatureMap, 20),
                  make_value("metrics", ValueKind::kMetrics, 8),
                  make_value("fc.y.gradient", ValueKind::kGradientMap, 20),
                  make_value("fc.filter.gradient", ValueKind::kParameterGradient, 40)};
  parts.ops = {make_op("fc.forward", Phase::kForward, {kImages, kWeights}, {kY}),
               make_op("loss.forward", Phase::kForward, {kY, kTargets}, {kMetrics}),
               make_op("loss.backward_data", Phase::kBackward, {kY, kTargets}, {kYGradient}),
               make_op("fc.backward_filter", Phase::kBackward, {kImages, kYGradient}, {kWeightsGradient}),
               make_op("fc.filter.update", Phase::kUpdate, {kWeights, kWeightsGradient, kMomentum},
                       {kWeights, kMomentum})};
  parts.ops[kLoss].layer = 1;
  parts.ops[kBackwardData].layer = 1;
  parts.ops[kBackwardData].may_overwrite = {{0, 0}};
  parts.layers = {{.name = "fc", .classifier = true}, {.name = "loss", .classifier = true}};
  parts.parameters = {{.value = kWeights, .state = {kMomentum}, .recipe = {}}};
  parts.inputs = {kImages, kTargets};
  parts.results = {kMetrics};
  parts.loss_weights = {1};
  return parts;
}

using Ops = std::vector<OpId>;
Ops readers(const Tape& tape, ValueId id) {
  return {tape.readers(id).begin(), tape.readers(id).end()};
}

TEST(Tape, IndexesProducersAndReaders) {
  const Tape tape(sound_parts());
  EXPECT_EQ(tape.forward_ops(), 2u);
  EXPECT_EQ(tape.producer(kImages), kNone);
  EXPECT_EQ(tape.producer(kWeights), kNone);
  EXPECT_EQ(tape.producer(kY), kForward);
  EXPECT_EQ(tape.producer(kWeightsGradient), kBackwardFilter);
  EXPECT_EQ(readers(tape, kImages), (Ops{kForward, kBackwardFilter}));
  EXPECT_EQ(readers(tape, kY), (Ops{kLoss, kBackwardData}));
  EXPECT_EQ(readers(tape, kWeights), (Ops{kForward, kUpdate}));
  EXPECT_TRUE(tape.readers(kMetrics).empty());
}

TEST(Tape, KnowsTheLastUse) {
  Tape::Parts parts = sound_parts();
  parts.values.push_back(make_value("idle", ValueKind::kParameter, 4));
  const Tape tape(std::move(parts));
  EXPECT_EQ(tape.last_use(kY), kBackwardData);
  EXPECT_EQ(tape.last_use(kMetrics), kLoss) << "its producer, since only the host reads it";
  EXPECT_EQ(tape.last_use(kMomentum), kUpdate);
  EXPECT_EQ(tape.last_use(kValues), kNone) << "no op uses it";
}

TEST(Tape, ListsAnOpThatReadsAValueTwiceOnce) {
  Tape::Parts parts = sound_parts();
  parts.ops[kForward].reads.push_back(kImages);
  EXPECT_EQ(readers(Tape(std::move(parts)), kImages), (Ops{kForward, kBackwardFilter}));
}

TEST(Tape, SumsBytes) {
  const Tape tape(sound_parts());
  EXPECT_EQ(tape.feature_map_bytes(), 100u + 20u);
  EXPECT_EQ(tape.weight_bytes(), 40u);
}

TEST(Tape, RejectsSumsThatOverflow) {
  Tape::Parts parts = sound_parts();
  parts.values[kY].bytes = ~std::uint64_t{0};
  const Tape tape(std::move(parts));
  EXPECT_THROW(tape.feature_map_bytes(), InvalidArgument);
}

// Adds a second parameter gradient, which an op of the backward pass sums in place.
Tape::Parts summing_parts() {
  Tape::Parts parts = sound_parts();
  parts.values.push_back(make_value("fc.filter.gradient_sum", ValueKind::kGradientSum, 40));
  Op sum = make_op("fc.filter.gradient.accumulate", Phase::kBackward, {kWeightsGradient, kValues}, {kValues});
  sum.spec = GradientSumSpec{};
  parts.ops.insert(parts.ops.begin() + kUpdate, std::move(sum));
  parts.ops.back().reads[1] = kValues;
  parts.parameters[0].gradient_sum = kValues;
  return parts;
}

TEST(Tape, SumsOfGradientsPersistAndAreMadeInTheBackwardPass) {
  const Tape tape(summing_parts());
  EXPECT_TRUE(tape.value(kValues).persistent());
  EXPECT_EQ(tape.producer(kValues), kNone);
  EXPECT_EQ(tape.weight_bytes(), 40U) << "no parameter";
}

TEST(Tape, ItIsCollectiveWhereRanksDoAnythingTogether) {
  EXPECT_FALSE(Tape(sound_parts()).collective());
  Tape::Parts parts = sound_parts();
  parts.values.push_back(make_value("sum", ValueKind::kParameterGradient, 40));
  Op reduce = make_op("reduce", Phase::kUpdate, {kWeightsGradient}, {kValues});
  reduce.spec = AllReduceSpec{};
  parts.ops.insert(parts.ops.begin() + kUpdate, std::move(reduce));
  parts.ops.back().reads[1] = kValues;
  const Tape tape(std::move(parts));
  EXPECT_TRUE(tape.collective());
  EXPECT_TRUE(tape.op(kUpdate).collective());
  EXPECT_FALSE(tape.op(kUpdate + 1).collective());
}

// One way to break the sound parts, and the text that the error must contain.
struct Breach {
  std::string name;
  std::function<void(Tape::Parts&)> apply;
  std::vector<std::string> named;
};

std::ostream& operator<<(std::ostream& out, const Breach& breach) {
  return out << breach.name;
}

class TapeRule : public testing::TestWithParam<Breach> {};

TEST_P(TapeRule, IsEnforced) {
  Tape::Parts parts = sound_parts();
  GetParam().apply(parts);
  try {
    const Tape tape(std::move(parts));
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    for (const std::string& name : GetParam().named) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

using P = Tape::Parts;
INSTANTIATE_TEST_SUITE_P(
    All, TapeRule,
    testing::Values(
        Breach{"ReadOutOfRange", [](P& p) { p.ops[kLoss].reads[0] = kValues; }, {"loss.forward", "8"}},
        Breach{"WriteOutOfRange", [](P& p) { p.ops[kLoss].writes[0] = kNone; }, {"loss.forward"}},
        Breach{"LayerOutOfRange", [](P& p) { p.ops[kForward].layer = 2; }, {"fc.forward", "2"}},
        Breach{"InputOutOfRange", [](P& p) { p.inputs[0] = kNone; }, {"inputs"}},
        Breach{"ResultOutOfRange", [](P& p) { p.results[0] = kValues; }, {"results"}},
        Breach{"ParameterOutOfRange", [](P& p) { p.parameters[0].value = kValues; }, {"parameters"}},
        Breach{"StateOutOfRange", [](P& p) { p.parameters[0].state[0] = kValues; }, {"parameters"}},
        Breach{"ReadBeforeMade",
               [](P& p) { std::swap(p.ops[kBackwardData], p.ops[kBackwardFilter]); },
               {"fc.backward_filter", "fc.y.gradient"}},
        Breach{
            "ReadByItsOwnMaker", [](P& p) { p.ops[kForward].reads.push_back(kY); }, {"fc.forward", "fc.y"}},
        Breach{"NeverMade", [](P& p) { p.ops[kLoss].writes.clear(); }, {"metrics"}},
        Breach{"MadeTwice",
               [](P& p) { p.ops[kBackwardFilter].writes.push_back(kYGradient); },
               {"fc.backward_filter", "fc.y.gradient", "loss.backward_data"}},
        Breach{
            "MadeTwiceByOneOp", [](P& p) { p.ops[kForward].writes.push_back(kY); }, {"fc.forward", "fc.y"}},
        Breach{"LoadedAndMade",
               [](P& p) { p.ops[kForward].writes.push_back(kImages); },
               {"fc.forward", "images"}},
        Breach{"PersistentRewrittenOutsideAnUpdate",
               [](P& p) { p.ops[kBackwardFilter].writes.push_back(kWeights); },
               {"fc.backward_filter", "fc.filter"}},
        Breach{"PersistentRewrittenUnread",
               [](P& p) { p.ops[kUpdate].reads.pop_back(); },
               {"fc.filter.update", "fc.filter.momentum"}},
        Breach{"NoAlgorithm", [](P& p) { p.ops[kLoss].algorithms.clear(); }, {"loss.forward"}},
        Breach{"PermissionForNoWrite",
               [](P& p) {
                 p.ops[kForward].may_overwrite = {{1, 0}};
               },
               {"fc.forward"}},
        Breach{"PermissionForNoRead",
               [](P& p) {
                 p.ops[kForward].may_overwrite = {{0, 2}};
               },
               {"fc.forward"}},
        Breach{"ForwardAfterBackward",
               [](P& p) { p.ops[kBackwardFilter].phase = Phase::kForward; },
               {"fc.backward_filter"}},
        Breach{"InputOfAnotherKind", [](P& p) { p.inputs[0] = kY; }, {"fc.y"}},
        Breach{"InputListedTwice", [](P& p) { p.inputs.push_back(kImages); }, {"images"}},
        Breach{"LoadedButNotListed", [](P& p) { p.inputs.pop_back(); }, {"loss.forward", "targets"}},
        Breach{"MetricsOfAnotherKind", [](P& p) { p.results[0] = kY; }, {"fc.y"}},
        Breach{"MetricsThatAreNoLoss", [](P& p) { p.loss_weights.clear(); }, {"metrics"}},
        Breach{"ResultTwice",
               [](P& p) {
                 p.results = {kMetrics, kY, kY};
               },
               {"fc.y", "twice"}},
        Breach{"ResultThatIsLoaded", [](P& p) { p.results.push_back(kImages); }, {"images"}},
        Breach{"ResultThatPersists", [](P& p) { p.results.push_back(kWeights); }, {"fc.filter"}},
        Breach{"MoreLossesThanResults",
               [](P& p) {
                 p.loss_weights = {1, 1};
               },
               {"results", "2 losses"}},
        Breach{"StatisticsUpdated",
               [](P& p) { p.parameters[0].recipe.trainable = false; },
               {"fc.filter.update", "fc.filter"}},
        Breach{"SumOutOfRange", [](P& p) { p.parameters[0].gradient_sum = kValues; }, {"parameters"}},
        Breach{
            "SumOfAnotherKind", [](P& p) { p.parameters[0].gradient_sum = kYGradient; }, {"fc.y.gradient"}},
        Breach{"SumMadeByAnUpdate",
               [](P& p) {
                 p = summing_parts();
                 p.ops[kUpdate].phase = Phase::kUpdate;
               },
               {"fc.filter.gradient.accumulate", "fc.filter.gradient_sum"}},
        Breach{"SumOfNothing",
               [](P& p) {
                 p = summing_parts();
                 p.ops[kUpdate].reads.pop_back();
               },
               {"fc.filter.gradient.accumulate", "fc.filter.gradient_sum"}},
        Breach{"ParameterOfAnotherKind", [](P& p) { p.parameters[0].value = kY; }, {"fc.y"}},
        Breach{"StateOfAnotherKind", [](P& p) { p.parameters[0].state[0] = kY; }, {"fc.y"}},
        Breach{"ValueNameRepeats", [](P& p) { p.values[kY].name = "images"; }, {"images"}},
        Breach{"OpNameRepeats", [](P& p) { p.ops[kLoss].name = "fc.forward"; }, {"fc.forward"}},
        Breach{"LayerNameRepeats", [](P& p) { p.layers[1].name = "fc"; }, {"fc"}}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace vdnn
