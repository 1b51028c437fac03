// Training in bf16 and fp16 on `cpu`. Policies and budgets move bytes but do not change results. Checkpoints
// fit other precisions. Evaluation and values by name work as in fp32.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/narrow_floats.h"
#include "tests/extent.h"
#include "tests/fakes/thread_ranks.h"
#include "tests/train/training_runs.h"
#include "vdnn/session.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

constexpr std::uint64_t kLarge = std::uint64_t{4} << 30;

struct Case {
  std::string model;
  Dims input;
};

using PrecisionCase = std::tuple<Case, DataType>;

class PrecisionTraining : public ::testing::TestWithParam<PrecisionCase> {
 protected:
  static RunOptions options(Policy policy, std::uint64_t budget) {
    const auto& [network, type] = GetParam();
    return {.model = {.model = network.model, .input = network.input, .batch = 4},
            .device = "cpu",
            .memory_bytes = budget,
            .host_memory_bytes = kLarge,
            .threads = 2,
            .policy = policy,
            .training = {.optimizer = SgdSpec{.momentum = 0.9F},
                         .precision = {.storage = type, .fp32_layers = {}}}};
  }
};

TEST_P(PrecisionTraining, OneHashAndThePredictedPeakUnderEveryPolicyAndBudget) {
  std::set<std::string> hashes;
  for (const Policy policy : testing::kPolicies) {
    const std::uint64_t smallest = plan_run(options(policy, kLarge)).smallest_budget_bytes();
    std::vector<std::uint64_t> budgets{smallest, kLarge, smallest + smallest / 2};
    budgets.resize(testing::extent({.usual = 2, .in_long_run = 3}));
    for (const std::uint64_t budget : budgets) {
      SCOPED_TRACE(to_string(policy) + " in " + format_size(budget));
      const PlannedRun run = plan_run(options(policy, budget));
      const DatasetSplits data = testing::data_for(run, "synthetic");
      const TrainingResult result =
          Trainer(run, data, {.learning_rate = 0.001, .steps = 4, .session = {.seed = 3}}).train({});
      EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
      EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
      EXPECT_EQ(result.system_allocations_after_first_step, 0U);
      EXPECT_TRUE(std::isfinite(result.loss)) << result.loss;
      hashes.insert(result.weights_sha256);
    }
  }
  EXPECT_EQ(hashes.size(), 1U);
}

std::string case_name(const ::testing::TestParamInfo<PrecisionCase>& test) {
  const auto& [network, type] = test.param;
  std::string name = network.model + "_" + to_string(type);
  std::erase(name, '-');
  return name;
}

// The fastest networks come first.
std::vector<Case> networks() {
  std::vector<Case> all{{"lenet", {}},
                        {"resnet20", {3, 16, 16}},
                        {"unet", {1, 20, 28}},
                        {"fashion-vgg", {}},
                        {"mobilenet", {3, 32, 32}}};
  all.resize(testing::extent({.usual = all.size(), .under_sanitizers = 2, .in_long_run = all.size()}));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Networks, PrecisionTraining,
                         ::testing::Combine(::testing::ValuesIn(networks()),
                                            ::testing::Values(DataType::kBf16, DataType::kF16)),
                         case_name);

// --- sessions ----------------------------------------------------------------------------------------------

Network small_network() {
  NetworkBuilder net("small", {4, 2, 6, 6});
  const Tensor x =
      net.convolution("conv", net.input(),
                      {.filters = 3, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .dilation = {}});
  const Tensor logits =
      net.fully_connected("fc", net.relu("relu", net.batch_normalization("norm", x)), {.outputs = 5});
  net.output(logits);
  net.softmax_cross_entropy("loss", logits);
  return std::move(net).build();
}

PlannedRun small_run(DataType type, std::vector<std::string> fp32_layers = {}) {
  return plan_run(small_network(),
                  {.device = "cpu",
                   .memory_bytes = std::uint64_t{64} << 20U,
                   .threads = 1,
                   .policy = Policy::kOffloadNone,
                   .training = {.precision = {.storage = type, .fp32_layers = std::move(fp32_layers)},
                                .results = {"conv.y", "conv.filter.gradient"}}});
}

class PrecisionSession : public ::testing::TestWithParam<DataType> {
 protected:
  static bool representable(float value) {
    return GetParam() == DataType::kBf16 ? Bf16::widen(Bf16::narrow(value)) == value
                                         : Fp16::widen(Fp16::narrow(value)) == value;
  }
  std::vector<float> images_ = std::vector<float>(std::size_t{4} * 2 * 6 * 6, 0.3F);
  std::vector<std::int32_t> targets_{0, 1, 2, 3};

  StepMetrics step(Session& session) {
    for (std::size_t i = 0; i < images_.size(); ++i) {
      images_[i] = std::sin(static_cast<float>(i));
    }
    return session.step({std::as_bytes(std::span(images_)), std::as_bytes(std::span(targets_))}, 0.1F);
  }
};

TEST_P(PrecisionSession, ResultsAreGivenInFp32AndWereStoredInTheNarrowType) {
  Session session(small_run(GetParam()), {.seed = 5});
  step(session);
  for (const char* const name : {"fc.y", "conv.y"}) {
    for (const float value : session.result(name)) {
      ASSERT_TRUE(representable(value)) << name << " " << value;
    }
  }
  // Gradients of parameters are fp32. It is extremely unlikely that all these sums of products are
  // representable in the narrow type.
  bool all_short = true;
  for (const float value : session.result("conv.filter.gradient")) {
    all_short = all_short && representable(value);
  }
  EXPECT_FALSE(all_short);
}

// Training continues from the fp32 parameters, so that small updates are not lost in the rounding of the
// copies.
TEST_P(PrecisionSession, ParametersKeepWhatTheirCopiesRoundAway) {
  Session session(small_run(GetParam()), {.seed = 5});
  const std::vector<float> before = session.parameter("conv.filter").values;
  for (int i = 0; i < 3; ++i) {
    session.step({std::as_bytes(std::span(images_)), std::as_bytes(std::span(targets_))}, 1e-6F);
  }
  const std::vector<float> after = session.parameter("conv.filter").values;
  EXPECT_NE(before, after);
  std::size_t short_numbers = 0;
  for (const float value : after) {
    short_numbers += representable(value) ? 1 : 0;
  }
  EXPECT_LT(short_numbers, after.size() / 4);
}

// A restored state and an assigned parameter also reach the copies, so the next step equals that of a session
// that continued.
TEST_P(PrecisionSession, GoesOnFromAStateWithTheSameBits) {
  Session first(small_run(GetParam()), {.seed = 5});
  step(first);
  const TrainingState state = first.state();
  Session second(small_run(GetParam()), {.seed = 6});
  second.restore(state);
  step(first);
  step(second);
  EXPECT_EQ(first.weights_sha256(), second.weights_sha256());
  EXPECT_EQ(first.result("fc.y"), second.result("fc.y"));

  const std::vector<float> filter = first.parameter("conv.filter").values;
  second.set_parameter("conv.filter", std::vector<float>(filter.size(), 0.0F));
  step(second);
  const ParameterValues bias = second.parameter("conv.bias");
  const std::vector<float> maps = second.result("conv.y");
  EXPECT_EQ(std::set<float>(maps.begin(), maps.end()).size(), 3U)
      << "with a zero filter only the bias of each channel remains";
}

// The fp32 parameters have the same names, shapes and bits in all precisions.
TEST_P(PrecisionSession, AStateGoesIntoAnotherPrecision) {
  Session narrow(small_run(GetParam()), {.seed = 5});
  step(narrow);
  Session wide(small_run(DataType::kF32), {.seed = 6});
  wide.restore(narrow.state());
  EXPECT_EQ(wide.weights_sha256(), narrow.weights_sha256());
  const float of_narrow = step(narrow).loss;
  const float of_wide = step(wide).loss;
  EXPECT_NE(of_narrow, of_wide);
  EXPECT_NEAR(of_narrow, of_wide, 0.05);
}

// Evaluation uses the copies that updates write; a restored state gets equal copies.
TEST_P(PrecisionSession, EvaluationUsesTheCopies) {
  const auto evaluated = [&](Session& session) {
    session.evaluate({std::as_bytes(std::span(images_)), std::as_bytes(std::span(targets_))});
    return session.result("fc.y");
  };
  Session session(small_run(GetParam()), {.seed = 5});
  const std::vector<float> before = evaluated(session);
  step(session);
  const std::vector<float> after = evaluated(session);
  EXPECT_NE(before, after);
  Session other(small_run(GetParam()), {.seed = 6});
  other.restore(session.state());
  EXPECT_EQ(evaluated(other), after);
}

// If evaluation reads only a parameter's copy, the parameter needs no further memory.
TEST_P(PrecisionSession, EvaluationTakesNoSecondParameters) {
  const PlannedRun run = small_run(GetParam());
  const auto tape = lower_to_evaluation_tape(run.own_network(), *run.catalog, run.options.training.precision);
  const Schedule schedule = make_schedule(*tape, make_plan(*tape, {}));
  for (const Buffer& buffer : schedule.buffers) {
    EXPECT_NE(buffer.name, "conv.filter");
  }
  EXPECT_NE(
      std::ranges::find(schedule.buffers, std::string("conv.filter.") + to_string(GetParam()), &Buffer::name),
      schedule.buffers.end());
}

// All ranks begin with the parameters of rank 0, and so do their copies.
TEST_P(PrecisionSession, RanksHaveTheCopiesOfTheFirst) {
  NetworkBuilder net("shared", {2, 2, 5, 5});
  const Tensor logits = net.fully_connected("fc", net.input(), {.outputs = 3});  // an odd number of weights
  net.output(logits);
  net.softmax_cross_entropy("loss", logits);
  const PlannedRun run =
      plan_run(std::move(net).build(),
               {.device = "cpu",
                .memory_bytes = std::uint64_t{64} << 20U,
                .host_memory_bytes = std::uint64_t{64} << 20U,
                .threads = 1,
                .policy = Policy::kOffloadNone,
                .training = {.ranks = 2, .precision = {.storage = GetParam(), .fp32_layers = {}}}});
  const std::vector<float> images(std::size_t{2} * 2 * 5 * 5, 0.7F);
  const std::vector<std::int32_t> targets{0, 2};
  std::vector<std::vector<float>> outputs(2);
  testing::run_ranks(2, [&](ProcessGroup& group) {
    Session session(run, {.seed = 10 + static_cast<std::uint64_t>(group.rank()),
                          .connect = [&](Device& device) { return group.communicator(device); }});
    session.evaluate({std::as_bytes(std::span(images)), std::as_bytes(std::span(targets))});
    outputs[static_cast<std::size_t>(group.rank())] = session.result("fc.y");
    session.leave_ranks();
  });
  EXPECT_EQ(outputs[0], outputs[1]);
}

INSTANTIATE_TEST_SUITE_P(Types, PrecisionSession, ::testing::Values(DataType::kBf16, DataType::kF16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace vdnn
