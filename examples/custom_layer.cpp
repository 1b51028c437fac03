// A custom layer: Swish, y = x sigmoid(slope x), with a trained slope per channel (Ramachandran, Zoph and Le,
// "Searching for Activation Functions", 2017). The layer saves the sigmoid for its backward pass. It has a
// parameter whose gradient it sums in a workspace in double precision.
//
// The program compares the gradient with central differences, and trains while every memory access is
// checked. Then it predicts the time and memory of the same network on a GPU that is not installed.

#include "vdnn/custom_layer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/network.h"
#include "vdnn/session.h"

namespace {

class Swish final : public vdnn::CustomLayer {
 public:
  std::string kind() const override { return "swish"; }

  vdnn::TensorType output(std::span<const vdnn::TensorType> inputs) const override {
    if (inputs.size() != 1 || inputs[0].dims.size() < 2) {
      throw vdnn::InvalidArgument("takes one input with channels");
    }
    return inputs[0];
  }

  vdnn::LayerRecipe describe(const vdnn::CustomQuestion& question) const override {
    if (question.device != "cpu" && question.device != "sim") {
      throw vdnn::InvalidArgument("has no code for " + question.device);
    }
    using enum vdnn::OperandRole;
    constexpr vdnn::Operand kSigmoid{kSaved, 0};
    const vdnn::TensorType& x = question.inputs[0];
    const auto channels = static_cast<std::uint64_t>(x.dims[1]);
    const auto elements = static_cast<double>(x.elements());
    const bool training = question.mode == vdnn::Mode::kTraining;
    vdnn::LayerRecipe recipe;
    recipe.parameters = {{.name = "slope",
                          .type = {.dims = {x.dims[1]}},
                          .initializer = vdnn::Initializer::kOne,
                          .storage_layout = {}}};
    recipe.forward = {{.direction = vdnn::Direction::kForward,
                       .reads = {{kInput, 0}, {kParameter, 0}},
                       .writes = {{kOutput, 0}},
                       .may_overwrite = {},
                       .algorithms = {{.name = "plain"}},
                       .cost = {.flops = 5 * elements, .bytes = 12 * elements}}};
    if (training) {
      recipe.saved = {{.name = "sigmoid", .type = x}};
      recipe.forward[0].writes.push_back(kSigmoid);
      recipe.backward = {{.direction = vdnn::Direction::kBackwardData,
                          .reads = {{kOutputGradient, 0}, {kInput, 0}, kSigmoid, {kParameter, 0}},
                          .writes = {{kInputGradient, 0}, {kParameterGradient, 0}},
                          .may_overwrite = {{.write = 0, .read = 0}},  // dX may overwrite dY
                          .algorithms = {{.name = "plain", .workspace_bytes = channels * sizeof(double)}},
                          .cost = {.flops = 9 * elements, .bytes = 16 * elements}}};
    }
    return recipe;
  }

  // Operands are in the order of the recipe.
  void run(const vdnn::CustomLaunch& launch) const override {
    if (launch.direction == vdnn::Direction::kForward) {
      forward(launch);
    } else {
      backward(launch);
    }
  }

 private:
  template <class T>
  static std::span<T> tensor(const vdnn::AddressRange& range) {
    return {vdnn::pointer_to<T>(range.begin), range.bytes / sizeof(T)};
  }

  static void forward(const vdnn::CustomLaunch& launch) {
    const auto x = tensor<const float>(launch.operands.reads[0]);
    const auto slope = tensor<const float>(launch.operands.reads[1]);
    const auto y = tensor<float>(launch.operands.writes[0]);
    const auto saved = launch.operands.writes.size() > 1 ? tensor<float>(launch.operands.writes[1])
                                                         : std::span<float>{};  // inference saves nothing
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float sigmoid = 1 / (1 + std::exp(-slope[i % slope.size()] * x[i]));  // channels are the last
                                                                                  // dimension
      y[i] = x[i] * sigmoid;
      if (!saved.empty()) {
        saved[i] = sigmoid;
      }
    }
  }

  static void backward(const vdnn::CustomLaunch& launch) {
    const auto dy = tensor<const float>(launch.operands.reads[0]);
    const auto x = tensor<const float>(launch.operands.reads[1]);
    const auto sigmoid = tensor<const float>(launch.operands.reads[2]);
    const auto slope = tensor<const float>(launch.operands.reads[3]);
    const auto dx = tensor<float>(launch.operands.writes[0]);
    const auto dslope = tensor<float>(launch.operands.writes[1]);
    const auto sums = tensor<double>(launch.operands.workspace).first(slope.size());
    std::ranges::fill(sums, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t channel = i % slope.size();
      const float gradient = dy[i];  // read first, since dX may overwrite it
      const float curve = x[i] * sigmoid[i] * (1 - sigmoid[i]);
      sums[channel] += static_cast<double>(gradient) * x[i] * curve;
      dx[i] = gradient * (sigmoid[i] + slope[channel] * curve);
    }
    std::ranges::transform(sums, dslope.begin(), [](double sum) { return static_cast<float>(sum); });
  }
};

vdnn::Network make_network(std::int64_t batch) {
  vdnn::NetworkBuilder net("swish-net", {batch, 1, 16, 16});
  vdnn::Tensor x = net.convolution("conv1", net.input(),
                                   {.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = net.custom("swish1", {x}, std::make_shared<Swish>());
  x = net.convolution("conv2", x, {.filters = 8, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  x = net.custom("swish2", {x}, std::make_shared<Swish>());
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 4}));
  return std::move(net).build();
}

constexpr std::int64_t kBatch = 8;

// Images of stripes; their direction and phase determine the class.
struct Batch {
  std::vector<float> images;
  std::vector<std::int32_t> classes;
};
Batch make_batch() {
  Batch batch;
  for (std::int32_t n = 0; n < kBatch; ++n) {
    batch.classes.push_back(n % 4);
    for (std::int32_t pixel = 0; pixel < 256; ++pixel) {
      const std::int32_t along = n % 2 == 0 ? pixel / 16 : pixel % 16;
      batch.images.push_back((along + n) % 4 < 2 ? 1.0F : -0.5F);
    }
  }
  return batch;
}

vdnn::RunOptions options_for(const std::string& device) {
  vdnn::RunOptions options;
  options.device = device;
  options.policy = vdnn::Policy::kOffloadAll;
  options.training.results = {"swish1.slope.gradient"};
  return options;
}

class Experiment {
 public:
  Experiment() : session_(plan(), {.seed = 3, .check_accesses = true}), batch_(make_batch()) {}

  double step(float learning_rate) {
    return session_
        .step({std::as_bytes(std::span(batch_.images)), std::as_bytes(std::span(batch_.classes))},
              learning_rate)
        .loss;
  }

  // Prints the slopes' gradient next to central differences of the loss.
  void print_gradient() {
    step(0);  // with a learning rate of 0, only for the gradient
    const std::vector<float> gradient = session_.result("swish1.slope.gradient");
    for (std::size_t channel = 0; channel < gradient.size(); ++channel) {
      const double difference = (loss_beside(channel, kNudge) - loss_beside(channel, -kNudge)) / (2 * kNudge);
      std::printf("slope %zu  gradient %9.6f  difference %9.6f\n", channel, gradient[channel], difference);
    }
  }

 private:
  static constexpr float kNudge = 0.0625F;

  static vdnn::PlannedRun plan() {
    vdnn::RunOptions options = options_for("cpu");
    options.page_aligned_blocks = true;  // required by check_accesses
    return vdnn::plan_run(make_network(kBatch), options);
  }

  double loss_beside(std::size_t channel, float nudge) {
    const std::vector<float> slope = session_.parameter("swish1.slope").values;
    std::vector<float> nudged = slope;
    nudged[channel] += nudge;
    session_.set_parameter("swish1.slope", nudged);
    const double loss = step(0);
    session_.set_parameter("swish1.slope", slope);
    return loss;
  }

  vdnn::Session session_;
  Batch batch_;
};

void demonstrate() {
  Experiment experiment;
  for (int step = 1; step <= 30; ++step) {
    const double loss = experiment.step(0.05F);
    if (step % 10 == 0) {
      std::printf("step %2d  loss %.4f\n", step, loss);
    }
    if (step == 5) {
      experiment.print_gradient();
    }
  }
  const vdnn::PlannedRun elsewhere = vdnn::plan_run(make_network(256), options_for("sim:titan-x"));
  std::printf("on %s a batch of 256 would take %llu bytes and %.2f ms a step\n",
              elsewhere.target.name.c_str(), static_cast<unsigned long long>(elsewhere.prediction.peak_bytes),
              1e3 * elsewhere.prediction.step_seconds);
}

}  // namespace

int main() {
  try {
    demonstrate();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "custom_layer: %s\n", error.what());
    return 1;
  }
}
