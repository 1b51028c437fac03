// A program outside the tree: a network with a layer of its own, trained for five steps in its own loop. It
// trains twice and prints results exact to the bit, so that a test can compare them.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "vdnn/custom_layer.h"
#include "vdnn/network.h"
#include "vdnn/session.h"

namespace {

// y = x / (1 + |x|).
class Softsign final : public vdnn::CustomLayer {
 public:
  std::string kind() const override { return "softsign"; }
  vdnn::TensorType output(std::span<const vdnn::TensorType> inputs) const override { return inputs[0]; }

  vdnn::LayerRecipe describe(const vdnn::CustomQuestion& question) const override {
    using enum vdnn::OperandRole;
    vdnn::LayerRecipe recipe;
    recipe.forward = {op(vdnn::Direction::kForward, {{kInput, 0}}, {{kOutput, 0}})};
    if (question.mode == vdnn::Mode::kTraining) {
      recipe.backward = {
          op(vdnn::Direction::kBackwardData, {{kOutputGradient, 0}, {kOutput, 0}}, {{kInputGradient, 0}})};
    }
    return recipe;
  }

  void run(const vdnn::CustomLaunch& launch) const override {
    const auto at = [](const vdnn::AddressRange& range) { return vdnn::pointer_to<float>(range.begin); };
    const float* const first = at(launch.operands.reads[0]);
    float* const result = at(launch.operands.writes[0]);
    const std::uint64_t elements = launch.output.elements();
    if (launch.direction == vdnn::Direction::kForward) {
      for (std::uint64_t i = 0; i < elements; ++i) {
        result[i] = first[i] / (1 + std::abs(first[i]));
      }
      return;
    }
    const float* const y = at(launch.operands.reads[1]);
    for (std::uint64_t i = 0; i < elements; ++i) {
      const float slope = 1 - std::abs(y[i]);
      result[i] = first[i] * slope * slope;
    }
  }

 private:
  static vdnn::OpRecipe op(vdnn::Direction direction, std::vector<vdnn::Operand> reads,
                           std::vector<vdnn::Operand> writes) {
    vdnn::OpRecipe recipe;
    recipe.direction = direction;
    recipe.reads = std::move(reads);
    recipe.writes = std::move(writes);
    recipe.algorithms = {{.name = "plain"}};
    return recipe;
  }
};

vdnn::Network make_network() {
  vdnn::NetworkBuilder net("outside", {4, 1, 8, 8});
  vdnn::Tensor x = net.convolution("conv", net.input(),
                                   {.filters = 6, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = net.custom("softsign", {x}, std::make_shared<Softsign>());
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 3}));
  return std::move(net).build();
}

void train_and_print(const char* title) {
  vdnn::RunOptions options;
  options.device = "cpu";
  options.policy = vdnn::Policy::kOffloadAll;
  vdnn::Session session(vdnn::plan_run(make_network(), options), {.seed = 5});
  std::vector<float> images(std::size_t{4} * 8 * 8);  // N x H x W
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<float>(i * 37 % 11) / 11;
  }
  const std::vector<std::int32_t> classes{0, 1, 2, 1};
  std::printf("%s:", title);
  for (int step = 0; step < 5; ++step) {
    const double loss =
        session.step({std::as_bytes(std::span(images)), std::as_bytes(std::span(classes))}, 0.1F).loss;
    std::printf(" %a", loss);
  }
  std::printf(" %s\n", session.weights_sha256().c_str());
}

}  // namespace

int main() {
  try {
    train_and_print("first");
    train_and_print("second");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "outside: %s\n", error.what());
    return 1;
  }
}
