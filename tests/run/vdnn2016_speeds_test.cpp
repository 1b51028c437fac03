// Compares speeds predicted by `sim:titan-x` with the classic catalog to speeds measured on such a card.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/classic_catalog.h"
#include "vdnn/planned_run.h"

namespace vdnn::vdnn2016_speeds_test {
namespace {

RunOptions on_titan_x(const std::string& model, std::int64_t batch) {
  // More memory than the card has, since the paper's speeds are relative to a baseline that may exceed the
  // card's memory, too.
  return {.model = {.model = model, .batch = batch},
          .device = "sim:titan-x",
          .memory_bytes = std::uint64_t{64} << 30};
}

// Speeds in the figures of the vDNN paper (Rhu et al. 2016), relative to the baseline with
// performance-optimal algorithms.
struct PaperSpeed {
  Policy policy;
  AlgorithmPreference preference;
  double relative_speed;
};

void expect_speeds(const std::string& model, std::int64_t batch, const std::vector<PaperSpeed>& speeds) {
  RunOptions options = on_titan_x(model, batch);
  options.policy = Policy::kBaseline;
  const PlannedRun baseline = plan_run(options);
  for (const PaperSpeed& speed : speeds) {
    const Prediction prediction =
        predict_policy(baseline, {.policy = speed.policy, .preference = speed.preference});
    EXPECT_NEAR(baseline.prediction.step_seconds / prediction.step_seconds, speed.relative_speed, 0.10)
        << model << ", " << to_string(speed.policy) << ", " << to_string(speed.preference);
  }
}

TEST(Vdnn2016Speeds, Alexnet) {
  expect_speeds("alexnet", 128,
                {{Policy::kOffloadAll, AlgorithmPreference::kMemory, 0.363},
                 {Policy::kOffloadAll, AlgorithmPreference::kPerformance, 0.776},
                 {Policy::kOffloadConv, AlgorithmPreference::kPerformance, 0.956}});
}

TEST(Vdnn2016Speeds, Vgg19) {
  expect_speeds("vgg19", 64,
                {{Policy::kOffloadAll, AlgorithmPreference::kMemory, 0.440},
                 {Policy::kOffloadAll, AlgorithmPreference::kPerformance, 0.843},
                 {Policy::kOffloadConv, AlgorithmPreference::kPerformance, 1.0}});
}

// The time of forward and backward passes only, with each op's first algorithm, as in the benchmark.
double pass_seconds(const Tape& tape, const SimProfile& profile) {
  double seconds = 0;
  for (const Op& op : tape.ops()) {
    seconds += op.phase == Phase::kUpdate ? 0 : profile.seconds(op.cost_with(0));
  }
  return seconds;
}

// Configuration A of Simonyan and Zisserman (2015).
Network vgg_a(std::int64_t batch) {
  NetworkBuilder net("vgg-a", {batch, 3, 224, 224});
  Tensor x = net.input();
  const auto group = [&](int number, std::int64_t filters, int convolutions) {
    for (int i = 1; i <= convolutions; ++i) {
      const std::string name = std::to_string(number) + "_" + std::to_string(i);
      x = net.convolution("conv" + name, x,
                          {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
      x = net.relu("relu" + name, x);
    }
    x = net.pooling("pool" + std::to_string(number), x,
                    {.mode = PoolingMode::kMax, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}});
  };
  group(1, 64, 1);
  group(2, 128, 1);
  group(3, 256, 2);
  group(4, 512, 2);
  group(5, 512, 2);
  x = net.relu("relu_fc1", net.fully_connected("fc1", x, {.outputs = 4096}));
  x = net.relu("relu_fc2", net.fully_connected("fc2", x, {.outputs = 4096}));
  net.softmax_cross_entropy("loss", net.fully_connected("fc3", x, {.outputs = 1000}));
  return std::move(net).build();
}

// github.com/soumith/convnet-benchmarks: fp32 with cuDNN 4 on a Titan X (Maxwell).
TEST(Vdnn2016Speeds, PassesTakeWhatWasMeasured) {
  const SimProfile profile = sim_profile("titan-x");
  const auto catalog = make_classic_catalog();
  const auto alexnet = lower_to_tape(make_model({.model = "alexnet", .batch = 128}), *catalog, {});
  EXPECT_NEAR(pass_seconds(*alexnet, profile), 0.081, 0.10 * 0.081);
  EXPECT_NEAR(pass_seconds(*lower_to_tape(vgg_a(64), *catalog, {}), profile), 0.529, 0.10 * 0.529);
}

// The classic catalog orders algorithms by its own rates, which must agree with the profile.
TEST(Vdnn2016Speeds, TheFirstAlgorithmIsTheFastestOnTheSimulatedDevice) {
  const SimProfile profile = sim_profile("titan-x");
  for (const char* model : {"alexnet", "overfeat", "googlenet", "vgg19", "resnet50"}) {
    const auto tape = lower_to_tape(make_model({.model = model, .batch = 32}), *make_classic_catalog(), {});
    for (const Op& op : tape->ops()) {
      for (std::uint32_t i = 1; i < op.algorithms.size(); ++i) {
        EXPECT_LE(profile.seconds(op.cost_with(i - 1)), profile.seconds(op.cost_with(i)))
            << model << ", " << op.name << ", " << op.algorithms[i].name;
      }
    }
  }
}

// Memory-optimal algorithms (`m`) are implicit GEMM. Performance-optimal ones (`p`) need fewer operations,
// and so less time, but move more data.
TEST(Vdnn2016Speeds, ImplicitGemmIsWhatTheMemoryOptimalAlgorithmsAre) {
  const auto tape = lower_to_tape(make_model({.model = "vgg19", .batch = 2}), *make_classic_catalog(), {});
  const Plan plan =
      make_plan(*tape, {.policy = Policy::kOffloadAll, .preference = AlgorithmPreference::kMemory});
  std::size_t convolutions = 0;
  for (OpId id = 0; id < tape->ops().size(); ++id) {
    const Op& op = tape->op(id);
    if (op.cost.arithmetic == Arithmetic::kConvolution) {
      ++convolutions;
      EXPECT_EQ(op.algorithms[plan.algorithms[id]].name, "implicit_gemm") << op.name;
      EXPECT_GT(op.cost_with(plan.algorithms[id]).flops, op.cost_with(0).flops) << op.name;
    }
  }
  EXPECT_EQ(convolutions, 16u * 3 - 1) << "three passes each, without the gradient of the images";
}

}  // namespace
}  // namespace vdnn::vdnn2016_speeds_test
