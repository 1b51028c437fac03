// A caller's own training loop with its own data, learning rate and stopping. The tests cover losses,
// outputs, gradients and parameters by name, and compare the numbers with those of the trainer's loop.

#include "vdnn/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "src/base/random.h"
#include "tests/train/every_layer.h"
#include "tests/train/training_runs.h"
#include "vdnn/error.h"

namespace vdnn::session_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kClasses = 3;

// A network with normalisation, dropout, an output, and two losses over two kinds of targets.
Network small_network(std::int64_t batch = kBatch) {
  NetworkBuilder net("small", {batch, 2, 6, 6});
  Tensor x =
      net.convolution("conv", net.input(),
                      {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .bias = false});
  x = net.relu("relu", net.batch_normalization("norm", x));
  const Tensor aside = net.sigmoid("aside", x);
  net.output(aside);
  const Tensor logits = net.fully_connected("fc", net.dropout("drop", x, 0.25F), {.outputs = kClasses});
  net.output(logits);
  net.softmax_cross_entropy("loss", logits);
  net.mean_squared_error("error", net.fully_connected("guess", x, {.outputs = 2}), {.weight = 0.5F},
                         net.target("wanted", {.dims = {batch, 2}}));
  return std::move(net).build();
}

RunOptions options(Policy policy = Policy::kOffloadAll) {
  return {.device = "cpu",
          .memory_bytes = std::uint64_t{64} << 20,
          .host_memory_bytes = std::uint64_t{64} << 20,
          .threads = 1,
          .policy = policy};
}

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> result(count);
  for (float& value : result) {
    value = random.symmetric();
  }
  return result;
}

struct Batch {
  std::vector<float> images;
  std::vector<std::int32_t> classes;
  std::vector<float> wanted;

  explicit Batch(std::uint64_t seed, std::int64_t batch = kBatch)
      : images(numbers(static_cast<std::size_t>(batch) * 2 * 6 * 6, seed)),
        wanted(numbers(static_cast<std::size_t>(batch) * 2, seed + 1000)) {
    for (std::int64_t i = 0; i < batch; ++i) {
      classes.push_back(static_cast<std::int32_t>((seed + static_cast<std::uint64_t>(i)) % kClasses));
    }
  }
  std::array<Session::Bytes, 3> inputs() const {
    return {std::as_bytes(std::span(images)), std::as_bytes(std::span(classes)),
            std::as_bytes(std::span(wanted))};
  }
};

// This network has no normalisation or dropout, so the gradients of a batch are the sum over its samples.
Network plain_network(std::int64_t batch) {
  NetworkBuilder net("plain", {batch, 2, 6, 6});
  const Tensor x =
      net.convolution("conv", net.input(),
                      {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .bias = false});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.relu("relu", x), {.outputs = kClasses}));
  return std::move(net).build();
}

struct ClassBatch {
  std::vector<float> images;
  std::vector<std::int32_t> classes;

  ClassBatch(std::uint64_t seed, std::int64_t batch) {
    const Batch all(seed, batch);
    images = all.images;
    classes = all.classes;
  }
  // One of `pieces` consecutive parts of the batch.
  ClassBatch piece(std::size_t index, std::size_t pieces) const {
    const auto cut = [&](const auto& all) {
      const auto size = static_cast<std::ptrdiff_t>(all.size() / pieces);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index) * size;
      return std::decay_t<decltype(all)>(begin, begin + size);
    };
    ClassBatch result = *this;
    result.images = cut(images);
    result.classes = cut(classes);
    return result;
  }
  std::array<Session::Bytes, 2> inputs() const {
    return {std::as_bytes(std::span(images)), std::as_bytes(std::span(classes))};
  }
};

TEST(Session, GivesBackLossesAndOutputs) {
  Session session(plan_run(small_network(), options()), {.seed = 5});
  const StepMetrics metrics = session.step(Batch(1).inputs(), 0.1F);
  ASSERT_EQ(metrics.losses.size(), 2U);
  EXPECT_NEAR(metrics.loss,
              static_cast<double>(metrics.losses[0].loss) + 0.5 * static_cast<double>(metrics.losses[1].loss),
              1e-12);
  EXPECT_EQ(metrics.losses[0].counted, kBatch);
  EXPECT_EQ(metrics.losses[1].counted, kBatch * 2);
  const std::vector<float> logits = session.result("fc.y");
  ASSERT_EQ(logits.size(), static_cast<std::size_t>(kBatch * kClasses));
  // Computes the first loss again from the logits.
  double loss = 0;
  for (std::size_t i = 0; i < kBatch; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < kClasses; ++k) {
      sum += std::exp(static_cast<double>(logits[i * kClasses + k]));
    }
    const auto target = static_cast<std::size_t>(Batch(1).classes[i]);
    loss += std::log(sum) - static_cast<double>(logits[i * kClasses + target]);
  }
  EXPECT_NEAR(static_cast<double>(metrics.losses[0].loss), loss / kBatch, 1e-6);
  EXPECT_EQ(session.result("aside.y").size(), static_cast<std::size_t>(kBatch * 4 * 6 * 6));
  EXPECT_EQ(session.steps(), 1U);
}

TEST(Session, GradientsAreReachableByNameAndAreWhatUpdatesTake) {
  RunOptions with_gradients = options();
  with_gradients.training.results = {"conv.filter.gradient", "norm.scale.gradient"};
  Session session(plan_run(small_network(), with_gradients), {.seed = 5});
  const std::vector<float> before = session.parameter("conv.filter").values;
  session.step(Batch(1).inputs(), 0.125F);
  const ParameterValues after = session.parameter("conv.filter");
  const std::vector<float> gradient = session.result("conv.filter.gradient");
  EXPECT_EQ(after.dims, (Dims{4, 3, 3, 2}));
  ASSERT_EQ(gradient.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after.values[i], before[i] - 0.125F * gradient[i]) << i;
  }
  EXPECT_EQ(session.result("norm.scale.gradient").size(), 4U);
}

// --- gradient accumulation -----------------------------------------------------------------------

constexpr std::uint32_t kMicroSteps = 3;

RunOptions accumulating(Policy policy = Policy::kOffloadAll) {
  RunOptions result = options(policy);
  result.training.micro_steps = kMicroSteps;
  return result;
}

std::vector<float> trained_parameters(Session& session) {
  std::vector<float> all;
  for (const std::string& name : session.parameter_names()) {
    const ParameterValues parameter = session.parameter(name);
    if (parameter.trainable) {
      all.insert(all.end(), parameter.values.begin(), parameter.values.end());
    }
  }
  return all;
}

TEST(Session, OnlyTheLastMicroStepUpdatesAndCounts) {
  Session session(plan_run(small_network(), accumulating()), {.seed = 5});
  for (std::uint64_t step = 0; step < 2; ++step) {
    const std::vector<float> before = trained_parameters(session);
    for (std::uint32_t micro_step = 0; micro_step + 1 < kMicroSteps; ++micro_step) {
      const StepMetrics metrics = session.step(Batch(micro_step).inputs(), 0.1F);
      EXPECT_EQ(metrics.losses[0].counted, kBatch) << "each micro-step has its own loss";
      EXPECT_EQ(session.steps(), step);
      EXPECT_EQ(trained_parameters(session), before);
    }
    session.step(Batch(9).inputs(), 0.1F);
    EXPECT_EQ(session.steps(), step + 1);
    EXPECT_NE(trained_parameters(session), before);
  }
}

TEST(Session, RefusesAStateBetweenMicroSteps) {
  Session session(plan_run(small_network(), accumulating()), {.seed = 5});
  const TrainingState start = session.state();
  session.step(Batch(1).inputs(), 0.1F);
  try {
    session.state();
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 of the 3 micro-steps"));
  }
  // A step in progress is not part of the restored training.
  session.restore(start);
  EXPECT_EQ(session.state().step, 0U);
  for (std::uint32_t micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
    session.step(Batch(micro_step).inputs(), 0.1F);
  }
  Session straight(plan_run(small_network(), accumulating()), {.seed = 5});
  for (std::uint32_t micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
    straight.step(Batch(micro_step).inputs(), 0.1F);
  }
  EXPECT_EQ(session.weights_sha256(), straight.weights_sha256());
}

TEST(Session, AccumulatesTheLeftFoldOfSingleGradients) {
  const std::string name = "conv.filter";
  // The gradients of each single batch, from the same parameters. The number of batches is a power of two, so
  // that dividing the losses loses no bits.
  constexpr std::uint32_t kBatches = 4;
  std::vector<float> fold;
  for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
    RunOptions alone = options();
    alone.training.results = {name + ".gradient"};
    Session session(plan_run(plain_network(kBatch), alone), {.seed = 5});
    session.step(ClassBatch(batch, kBatch).inputs(), 0);
    const std::vector<float> gradient = session.result(name + ".gradient");
    fold.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      fold[i] = batch == 0 ? gradient[i] / kBatches : fold[i] + gradient[i] / kBatches;
    }
  }
  RunOptions together = options();
  together.training.micro_steps = kBatches;
  Session session(plan_run(plain_network(kBatch), together), {.seed = 5});
  const std::vector<float> before = session.parameter(name).values;
  for (std::uint32_t batch = 0; batch < kBatches; ++batch) {
    session.step(ClassBatch(batch, kBatch).inputs(), 0.125F);
  }
  const std::vector<float> after = session.parameter(name).values;
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i], before[i] - 0.125F * fold[i]) << i;
  }
}

// Without batch normalisation, micro-steps over the pieces of a batch are equivalent to the whole batch.
TEST(Session, MicroStepsAreOneLargeBatchToWithinRounding) {
  constexpr std::uint32_t kPieces = 4;
  RunOptions pieces = options();
  pieces.training.micro_steps = kPieces;
  Session small(plan_run(plain_network(kBatch), pieces), {.seed = 5});
  Session large(plan_run(plain_network(kPieces * kBatch), options()), {.seed = 5});
  for (std::uint64_t step = 0; step < 3; ++step) {
    const ClassBatch whole(step, kPieces * kBatch);
    double loss = 0;
    for (std::uint32_t piece = 0; piece < kPieces; ++piece) {
      loss += small.step(whole.piece(piece, kPieces).inputs(), 0.1F).loss / kPieces;
    }
    EXPECT_NEAR(loss, large.step(whole.inputs(), 0.1F).loss, 1e-5);
  }
  const std::vector<float> one = trained_parameters(small);
  const std::vector<float> other = trained_parameters(large);
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], other[i], 1e-5F) << i;
  }
}

TEST(Session, RanksWantACommunicator) {
  RunOptions two = options();
  two.training.ranks = 2;
  try {
    Session session(plan_run(small_network(), two), {});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 ranks"));
  }
}

TEST(Session, ParametersAreReachableByName) {
  Session session(plan_run(small_network(), options()), {});
  EXPECT_THAT(session.parameter_names(),
              ElementsAre("conv.filter", "norm.scale", "norm.shift", "norm.running_mean",
                          "norm.running_variance", "fc.filter", "fc.bias", "guess.filter", "guess.bias"));
  EXPECT_THAT(session.parameter("norm.running_variance").values, ElementsAre(1, 1, 1, 1));
  EXPECT_FALSE(session.parameter("norm.running_variance").trainable);
  const std::vector<float> filter = numbers(72, 9);  // 4 x 3 x 3 x 2
  session.set_parameter("conv.filter", filter);
  EXPECT_EQ(session.parameter("conv.filter").values, filter);
  const std::string hash = session.weights_sha256();
  session.step(Batch(1).inputs(), 0.1F);
  EXPECT_NE(session.weights_sha256(), hash);
  EXPECT_NE(session.parameter("norm.running_variance").values, std::vector<float>(4, 1.0F));
}

TEST(Session, TheSameStepsUnderEveryPolicyHaveTheSameBits) {
  std::vector<std::string> hashes;
  for (const Policy policy : testing::kPolicies) {
    Session session(plan_run(small_network(), options(policy)), {.seed = 2});
    for (std::uint64_t step = 0; step < 5; ++step) {
      session.step(Batch(step).inputs(), 0.05F);
    }
    hashes.push_back(session.weights_sha256());
  }
  EXPECT_THAT(hashes, ::testing::Each(hashes.front()));
}

TEST(Session, StepsAsTheTrainerDoes) {
  RunOptions lenet = options();
  lenet.model = {.model = "lenet", .batch = 8};
  lenet.training.optimizer = SgdSpec{.momentum = 0.9F};
  const PlannedRun run = plan_run(lenet);
  const DatasetSplits data = testing::data_for(run, "synthetic");
  const TrainingResult trained =
      Trainer(run, data, {.learning_rate = 0.01, .steps = 4, .session = {.seed = 4}}).train({});

  Session session(run, {.seed = 4});
  const BatchOrder order{.samples = data.training->size(), .batch = 8, .shuffle = true, .seed = 4};
  constexpr std::size_t kPixels = 784;  // 28 x 28
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<float> images;
    std::vector<std::int32_t> targets;
    for (const std::uint64_t index : order.indices(step)) {
      images.resize(images.size() + kPixels);
      targets.push_back(0);
      data.training->read({.index = index}, std::span(images).last(kPixels), std::span(targets).last(1));
    }
    session.step({std::as_bytes(std::span(images)), std::as_bytes(std::span(targets))}, 0.01F);
  }
  EXPECT_EQ(session.weights_sha256(), trained.weights_sha256);
}

TEST(Session, EvaluatesWithoutLearning) {
  Session session(plan_run(small_network(), options()), {.seed = 3});
  session.step(Batch(1).inputs(), 0.1F);
  const std::string hash = session.weights_sha256();
  ASSERT_EQ(session.evaluation_batch(), kBatch);
  const StepMetrics first = session.evaluate(Batch(7).inputs());
  const std::vector<float> logits = session.result("fc.y");
  // Evaluation has no dropout and does not update running statistics, so a repetition has the same result.
  EXPECT_EQ(session.evaluate(Batch(7).inputs()).loss, first.loss);
  EXPECT_EQ(session.result("fc.y"), logits);
  EXPECT_EQ(session.weights_sha256(), hash);
  EXPECT_EQ(session.steps(), 1U);
  session.step(Batch(2).inputs(), 0.1F);
  EXPECT_EQ(session.steps(), 2U);
  EXPECT_LE(session.device().counters().peak_committed_bytes, session.run().prediction.peak_bytes);
}

TEST(Session, DropoutFollowsSeedAndStep) {
  const auto loss_of = [](std::uint64_t seed, std::uint64_t steps_before) {
    Session session(plan_run(small_network(), options()), {.seed = 3});
    TrainingState state = session.state();
    state.seed = seed;
    state.step = steps_before;
    session.restore(state);
    return session.step(Batch(1).inputs(), 0).losses[0].loss;
  };
  EXPECT_EQ(loss_of(3, 0), loss_of(3, 0));
  EXPECT_NE(loss_of(3, 0), loss_of(4, 0));
  EXPECT_NE(loss_of(3, 0), loss_of(3, 1));
}

TEST(Session, GoesOnFromAState) {
  RunOptions adam = options();
  adam.training = {.optimizer = AdamSpec{.weight_decay = 0.01F, .decoupled = true}, .clip_norm = 0.5F};
  const auto steps = [](Session& session, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t step = first; step < first + count; ++step) {
      session.step(Batch(step).inputs(), 0.01F);
    }
  };
  Session whole(plan_run(small_network(), adam), {.seed = 6});
  steps(whole, 0, 6);
  Session first(plan_run(small_network(), adam), {.seed = 6});
  steps(first, 0, 3);
  const TrainingState state = first.state();
  EXPECT_EQ(state.step, 3U);
  ASSERT_EQ(state.optimizer.size(), 2U * 7);  // seven of the nine parameters are trained
  adam.policy = Policy::kOffloadNone;
  Session second(plan_run(small_network(), adam), {.seed = 1});
  second.restore(state);
  EXPECT_EQ(second.steps(), 3U);
  steps(second, 3, 3);
  EXPECT_EQ(second.weights_sha256(), whole.weights_sha256());
  EXPECT_EQ(second.state().optimizer.back().values, whole.state().optimizer.back().values);
}

// --- what cannot be ----------------------------------------------------------------------------------------

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Session, SaysWhatAStepTakes) {
  Session session(plan_run(small_network(), options()), {});
  const Batch batch(1);
  const std::string error =
      error_of([&] { session.step({std::as_bytes(std::span(batch.images)).first(4)}, 0.1F); });
  EXPECT_THAT(error, HasSubstr("images of 1152 bytes"));
  EXPECT_THAT(error, HasSubstr("targets of 16 bytes"));
  EXPECT_THAT(error, HasSubstr("wanted of 32 bytes"));
  EXPECT_THAT(error, HasSubstr("given 4"));
  session.step(batch.inputs(), 0.1F);  // the session continues
}

TEST(Session, SaysWhichNamesThereAreNot) {
  Session session(plan_run(small_network(), options()), {});
  EXPECT_THAT(error_of([&] { session.result("fc.y"); }), HasSubstr("no step"));
  session.step(Batch(1).inputs(), 0.1F);
  EXPECT_THAT(error_of([&] { session.result("relu.y"); }), HasSubstr("'relu.y' is not among the results"));
  EXPECT_THAT(error_of([&] { session.result("nothing"); }), HasSubstr("'nothing'"));
  EXPECT_THAT(error_of([&] { session.parameter("conv.bias"); }), HasSubstr("no parameter 'conv.bias'"));
  EXPECT_THAT(error_of([&] { session.set_parameter("fc.bias", std::vector<float>(2)); }),
              HasSubstr("3 elements, not 2"));
  RunOptions wrong = options();
  wrong.training.results = {"conv.bias.gradient"};
  EXPECT_THAT(error_of([&] { plan_run(small_network(), wrong); }), HasSubstr("'conv.bias.gradient'"));
}

TEST(Session, TakesNoStateOfAnotherNetworkOrOptimizer) {
  Session session(plan_run(small_network(), options()), {});
  const std::string hash = session.weights_sha256();
  TrainingState state = session.state();
  state.parameters[0].dims = {4, 3, 2, 3};
  EXPECT_THAT(error_of([&] { session.restore(state); }), HasSubstr("'conv.filter' (4x3x2x3)"));
  state = session.state();
  state.optimizer.pop_back();
  EXPECT_THAT(error_of([&] { session.restore(state); }), HasSubstr("another optimizer"));
  state = session.state();
  state.optimizer.push_back(state.optimizer.back());
  EXPECT_THAT(error_of([&] { session.restore(state); }), HasSubstr("another optimizer"));
  state = session.state();
  state.parameters.pop_back();
  EXPECT_THAT(error_of([&] { session.restore(state); }),
              HasSubstr("no 'guess.bias' (2): it is of another network"));
  EXPECT_EQ(session.weights_sha256(), hash);
}

// --- steps in flight ---------------------------------------------------------------------------------------

// Page-locked memory that contains one batch.
class StagedInputs {
 public:
  StagedInputs(Session& session, const Batch& batch) : session_(session) {
    for (const Session::Bytes& input : batch.inputs()) {
      ranges_.push_back(*session.pinned().allocate_for_host(input.size()));
      std::memcpy(pointer_to<std::byte>(ranges_.back().begin), input.data(), input.size());
    }
  }
  ~StagedInputs() {
    for (const AddressRange& range : ranges_) {
      session_.pinned().free(range, session_.streams().everything(session_.device()));
    }
  }
  StagedInputs(const StagedInputs&) = delete;
  StagedInputs& operator=(const StagedInputs&) = delete;

  std::span<const AddressRange> ranges() const { return ranges_; }

 private:
  Session& session_;
  std::vector<AddressRange> ranges_;
};

TEST(Session, ReadsNothingWithStepsInFlight) {
  Session session(plan_run(small_network(), options()));
  EXPECT_THAT(error_of([&] { session.wait({}); }), HasSubstr("none is in flight"));
  const StagedInputs inputs(session, Batch(1));
  const StepTicket first = session.submit(inputs.ranges(), 0.1F);
  for (const auto& action : std::vector<std::function<void()>>{
           [&] { session.parameter("fc.bias"); }, [&] { session.set_parameter("fc.bias", {}); },
           [&] { session.state(); }, [&] { session.weights_sha256(); },
           [&] { session.step(Batch(2).inputs(), 0.1F); }, [&] { session.evaluate(Batch(2).inputs()); }}) {
    EXPECT_NE(error_of(action), "accepted");
  }
  EXPECT_THAT(error_of([&] { session.weights_sha256(); }), HasSubstr("1 steps are in flight"));
  const StepTicket second = session.submit(inputs.ranges(), 0.1F);
  EXPECT_THAT(error_of([&] { session.submit(inputs.ranges(), 0.1F); }), HasSubstr("third"));
  EXPECT_THAT(error_of([&] { session.wait(second); }), HasSubstr("step 0"));
  session.wait(first);
  EXPECT_EQ(session.result("fc.y").size(), static_cast<std::size_t>(kBatch * kClasses));
  session.wait(second);
  session.weights_sha256();
}

// Regression: tickets of two executors had the same numbers, and a stale ticket was taken for that of the new
// step.
TEST(Session, TakesNoTicketOfAPhaseThatIsOver) {
  Session session(plan_run(small_network(), options()));
  const StagedInputs x(session, Batch(1));
  const StagedInputs y(session, Batch(2));
  const StepTicket stale = session.submit(x.ranges(), 0.1F);
  session.finish();
  const StepTicket ticket = session.submit(y.ranges(), 0.1F);
  EXPECT_THAT(error_of([&] { session.wait(stale); }), HasSubstr("an executor that is gone"));
  EXPECT_TRUE(std::isfinite(session.wait(ticket).loss));
}

TEST(Session, ResultsAreThereUntilTheNextStepButOne) {
  Session session(plan_run(small_network(), options()));
  session.step(Batch(1).inputs(), 0.1F);
  const std::vector<float> logits = session.result("fc.y");
  const StagedInputs inputs(session, Batch(2));
  const StepTicket first = session.submit(inputs.ranges(), 0.1F);
  EXPECT_EQ(session.result("fc.y"), logits);
  const StepTicket second = session.submit(inputs.ranges(), 0.1F);
  EXPECT_THAT(error_of([&] { session.result("fc.y"); }), HasSubstr("not available"));
  session.wait(first);
  EXPECT_NE(session.result("fc.y"), logits);
  session.wait(second);
  session.finish();
  EXPECT_THAT(error_of([&] { session.result("fc.y"); }), HasSubstr("no step"));
}

// Results may be feature maps that are overwritten in place, gradients that are summed, or saved values.
// Under every policy and with all delays, they are copied before that happens.
TEST(Session, ResultsHaveTheSameBitsUnderEveryPolicyAndDelay) {
  std::set<std::vector<std::vector<float>>> seen;
  for (const Policy policy : testing::kPolicies) {
    RunOptions all = options(policy);
    all.training.results = {"norm.y", "relu.y.gradient", "loss.probabilities", "conv.filter.gradient"};
    Session session(plan_run(small_network(), all), {.seed = 2, .delay_seed = 7});
    const StagedInputs inputs(session, Batch(3));
    std::vector<std::vector<float>> results;
    const StepTicket first = session.submit(inputs.ranges(), 0.1F);
    const StepTicket second = session.submit(inputs.ranges(), 0.1F);
    for (const StepTicket& ticket : {first, second}) {
      session.wait(ticket);
      for (const char* name :
           {"norm.y", "relu.y.gradient", "loss.probabilities", "conv.filter.gradient", "fc.y", "aside.y"}) {
        results.push_back(session.result(name));
      }
    }
    seen.insert(results);
  }
  EXPECT_EQ(seen.size(), 1U);
}

// --- failures in the middle of a step ----------------------------------------------------------------------

// Doubles its input, except in one launch.
class Failing final : public CustomLayer {
 public:
  std::string kind() const override { return "failing"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override { return doubling_.describe(question); }
  void run(const CustomLaunch& launch) const override {
    if (launches_++ == fail_at) {
      throw std::runtime_error("out of luck");
    }
    doubling_.run(launch);
  }
  int fail_at = -1;

 private:
  testing::Doubling doubling_;
  mutable int launches_ = 0;  // by the stream's thread alone
};

Network failing_network(const std::shared_ptr<const CustomLayer>& layer) {
  NetworkBuilder net("failing", {kBatch, 2, 6, 6});
  Tensor x = net.custom("custom", {net.relu("relu", net.input())}, layer);
  x = net.batch_normalization("norm", x);
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = kClasses}));
  return std::move(net).build();
}

template <class Action>
std::string failure_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

// Regression: finish() forgot the failure, and the next step ran on partly updated parameters.
TEST(Session, AFailedStepEndsEverythingWithItsFirstCause) {
  for (const Policy policy : testing::kPolicies) {
    SCOPED_TRACE(to_string(policy));
    const auto layer = std::make_shared<Failing>();
    layer->fail_at = 1;  // the second step
    Session session(plan_run(failing_network(layer), options(policy)));
    const Batch batch(1);
    const std::array<Session::Bytes, 2> inputs{std::as_bytes(std::span(batch.images)),
                                               std::as_bytes(std::span(batch.classes))};
    session.step(inputs, 0.1F);
    const TrainingState good = session.state();
    EXPECT_THAT(failure_of([&] { session.step(inputs, 0.1F); }), HasSubstr("out of luck"));
    for (const auto& action : std::vector<std::function<void()>>{
             [&] { session.step(inputs, 0.1F); }, [&] { session.evaluate(inputs); },
             [&] { session.finish(); }, [&] { session.state(); }, [&] { session.parameter("fc.bias"); },
             [&] { session.result("fc.y"); }, [&] { session.weights_sha256(); }}) {
      EXPECT_THAT(failure_of(action), HasSubstr("out of luck"));
    }
    EXPECT_EQ(good.step, 1U);
  }
}

// Regression: the step ran until the loss op found the label. The session then refused further steps and
// returned no state.
TEST(Session, ALabelThatIsNoClassIsRefusedAndTheNextBatchIsTaken) {
  for (const Policy policy : testing::kPolicies) {
    SCOPED_TRACE(to_string(policy));
    Session session(plan_run(small_network(), options(policy)), {.seed = 5});
    session.step(Batch(1).inputs(), 0.1F);
    const std::string before = session.weights_sha256();
    Batch bad(2);
    bad.classes[3] = kClasses;
    const auto message = AllOf(HasSubstr("target 3 of sample 3"), HasSubstr("0 to 2"));
    EXPECT_THAT(([&] { session.step(bad.inputs(), 0.1F); }), ThrowsMessage<InvalidArgument>(message));
    EXPECT_EQ(session.steps(), 1U);
    EXPECT_EQ(session.state().step, 1U);
    EXPECT_EQ(session.weights_sha256(), before);
    EXPECT_THAT(([&] { session.evaluate(bad.inputs()); }), ThrowsMessage<InvalidArgument>(message));
    session.evaluate(Batch(2).inputs());
    session.step(Batch(2).inputs(), 0.1F);

    Session without(plan_run(small_network(), options(policy)), {.seed = 5});
    without.step(Batch(1).inputs(), 0.1F);
    without.step(Batch(2).inputs(), 0.1F);
    EXPECT_EQ(session.weights_sha256(), without.weights_sha256());
  }
}

TEST(Session, ANegativeLabelIsAPlaceThatDoesNotCount) {
  Session session(plan_run(small_network(), options()), {.seed = 5});
  Batch batch(1);
  batch.classes[0] = -7;
  EXPECT_EQ(session.step(batch.inputs(), 0.1F).losses[0].counted, kBatch - 1);
}

// The gradients of earlier micro-steps are kept.
TEST(Session, ALabelThatIsRefusedBetweenMicroStepsEndsNoStep) {
  const auto weights = [](bool with_bad) {
    Session session(plan_run(small_network(), accumulating()), {.seed = 5});
    for (std::uint32_t micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
      Batch bad(micro_step);
      bad.classes[0] = 77;
      if (with_bad) {
        EXPECT_THROW(session.step(bad.inputs(), 0.1F), InvalidArgument);
      }
      session.step(Batch(micro_step).inputs(), 0.1F);
    }
    EXPECT_EQ(session.steps(), 1U);
    return session.weights_sha256();
  };
  EXPECT_EQ(weights(true), weights(false));
}

// The cause of a failed step may be temporary. With a restored state the session continues.
TEST(Session, ARestoredStateMendsAStepThatRanOutOfMemory) {
  RunOptions tight = options(Policy::kOffloadAll);
  tight.host_memory_bytes = plan_run(small_network(), tight).prediction.host_bytes;
  Session session(plan_run(small_network(), tight), {.seed = 5});
  const TrainingState fresh = session.state();
  // Allocates the rest of the host's budget, so that a feature map finds no host memory.
  std::vector<AddressRange> hoard;
  while (const auto block = session.pinned().allocate_for_host(512)) {
    hoard.push_back(*block);
  }
  EXPECT_THROW(session.step(Batch(1).inputs(), 0.1F), OutOfMemory);
  for (const AddressRange& block : hoard) {
    session.pinned().free(block, {});
  }
  session.restore(fresh);
  session.step(Batch(1).inputs(), 0.1F);
  Session other(plan_run(small_network(), options(Policy::kOffloadAll)), {.seed = 5});
  other.step(Batch(1).inputs(), 0.1F);
  EXPECT_EQ(session.weights_sha256(), other.weights_sha256());
}

TEST(Session, SimulatedDevicesTakeNoSteps) {
  RunOptions simulated = options();
  simulated.device = "sim:titan-x";
  EXPECT_THAT(error_of([&] { Session(plan_run(small_network(), simulated), {}); }), HasSubstr("sim:titan-x"));
}

}  // namespace
}  // namespace vdnn::session_test
