// Trains a network in the least device memory that offloading every feature map allows. The program computes
// this budget before training. The predicted peak equals the measured peak to the byte.

#include <cstdio>
#include <exception>
#include <string>

#include "vdnn/dataset.h"
#include "vdnn/network.h"
#include "vdnn/planned_run.h"
#include "vdnn/trainer.h"

namespace {

// A small VGG: the first feature maps are large, and are not needed before the end of the backward pass.
vdnn::Network small_vgg() {
  const auto same = [](std::int64_t filters) {
    return vdnn::ConvolutionSpec{.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  };
  const vdnn::PoolingSpec half{.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
  vdnn::NetworkBuilder net("small-vgg", {16, 1, 28, 28});  // N, C, H, W
  vdnn::Tensor x = net.input();
  for (const std::int64_t filters : {16, 32, 32}) {
    const std::string stage = std::to_string(net.type(x).dims[2]);  // 28, 14, 7
    x = net.relu("relu_a" + stage, net.convolution("conv_a" + stage, x, same(filters)));
    x = net.relu("relu_b" + stage, net.convolution("conv_b" + stage, x, same(filters)));
    x = net.pooling("pool" + stage, x, half);
  }
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
  return std::move(net).build();
}

void train() {
  const vdnn::Network network = small_vgg();
  vdnn::RunOptions options;
  options.device = "cpu";
  options.policy = vdnn::Policy::kOffloadAll;
  options.training.optimizer = vdnn::SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F};
  options.memory_bytes = vdnn::plan_run(network, options).smallest_budget_bytes();

  const vdnn::PlannedRun run = vdnn::plan_run(network, options);
  const vdnn::Prediction baseline = vdnn::predict_policy(run, {.policy = vdnn::Policy::kBaseline});
  std::printf("baseline peak   %llu bytes\n", static_cast<unsigned long long>(baseline.peak_bytes));
  std::printf("predicted peak  %llu bytes\n", static_cast<unsigned long long>(run.prediction.peak_bytes));

  const vdnn::DatasetSplits data = vdnn::open_dataset(vdnn::dataset_options(network, "synthetic", 1));
  vdnn::Trainer trainer(run, data, {.learning_rate = 0.005, .steps = 40});
  const vdnn::TrainingResult result = trainer.train([](const vdnn::StepReport& report) {
    if (report.step % 10 == 0) {
      std::printf("step %2llu  loss %.4f\n", static_cast<unsigned long long>(report.step), report.loss);
    }
  });
  std::printf("measured peak   %llu bytes\n", static_cast<unsigned long long>(result.peak_bytes));
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_under_a_budget: %s\n", error.what());
    return 1;
  }
}
