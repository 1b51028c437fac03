// Training in the caller's own loop, with the caller's data, learning rate and stopping rule. The loop reads
// outputs and gradients by name, and changes a parameter from outside.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <vector>

#include "vdnn/network.h"
#include "vdnn/session.h"

namespace {

constexpr std::size_t kBatch = 16;
constexpr std::size_t kExtent = 12;
constexpr std::size_t kPixels = kExtent * kExtent;
constexpr std::int64_t kClasses = 4;

// Noise with a bright patch in one of four quarters; the quarter is the class.
struct Batch {
  std::vector<float> images = std::vector<float>(kBatch * kPixels);  // N x H x W x C
  std::vector<std::int32_t> classes = std::vector<std::int32_t>(kBatch);
};

Batch make_batch(std::mt19937& random) {
  Batch batch;
  for (float& pixel : batch.images) {
    pixel = 0.1F * static_cast<float>(random() % 8);
  }
  for (std::size_t n = 0; n < kBatch; ++n) {
    const std::size_t quarter = random() % kClasses;
    batch.classes[n] = static_cast<std::int32_t>(quarter);
    for (std::size_t i = 0; i < 9; ++i) {
      const std::size_t row = 2 + i / 3 + (quarter / 2) * 6;
      const std::size_t column = 2 + i % 3 + (quarter % 2) * 6;
      batch.images[n * kPixels + row * kExtent + column] += 1.0F;
    }
  }
  return batch;
}

vdnn::Network make_network() {
  vdnn::NetworkBuilder net("quarters", {kBatch, 1, kExtent, kExtent});
  const vdnn::Tensor maps = net.convolution(
      "conv", net.input(), {.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  const vdnn::Tensor logits = net.fully_connected("fc", net.relu("relu", maps), {.outputs = kClasses});
  net.output(logits);  // "fc.y" is copied to the host after every step
  net.softmax_cross_entropy("loss", logits);
  return std::move(net).build();
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

// Limits the norm of all weights of a layer (a max-norm constraint). None of the library's optimizers does
// this.
void limit_norm(vdnn::Session& session, const char* name, double limit) {
  std::vector<float> values = session.parameter(name).values;
  const double scale = limit / norm(values);
  if (scale < 1) {
    for (float& value : values) {
      value = static_cast<float>(value * scale);
    }
    session.set_parameter(name, values);
  }
}

void train() {
  vdnn::RunOptions options;
  options.device = "cpu";
  options.policy = vdnn::Policy::kOffloadAll;
  options.training.optimizer = vdnn::SgdSpec{.momentum = 0.9F};
  options.training.results = {"conv.filter.gradient"};  // in addition to the network's outputs
  vdnn::Session session(vdnn::plan_run(make_network(), options), {.seed = 7});

  std::mt19937 random(7);
  float learning_rate = 0.02F;
  double smoothed = std::log(kClasses);
  while (smoothed > 0.1 && session.steps() < 300) {
    const Batch batch = make_batch(random);
    const vdnn::StepMetrics metrics = session.step(
        {std::as_bytes(std::span(batch.images)), std::as_bytes(std::span(batch.classes))}, learning_rate);
    smoothed += 0.1 * (metrics.loss - smoothed);
    learning_rate *= 0.995F;
    limit_norm(session, "fc.filter", 1.5);
    if (session.steps() % 20 == 0) {
      std::printf("step %3llu  loss %.4f  gradient %.4f  weights %.4f\n",
                  static_cast<unsigned long long>(session.steps()), metrics.loss,
                  norm(session.result("conv.filter.gradient")), norm(session.parameter("fc.filter").values));
    }
  }
  std::printf("stopped after %llu steps\n", static_cast<unsigned long long>(session.steps()));

  const Batch batch = make_batch(random);
  const vdnn::StepMetrics metrics =
      session.evaluate({std::as_bytes(std::span(batch.images)), std::as_bytes(std::span(batch.classes))});
  const std::vector<float> logits = session.result("fc.y");  // N x classes
  std::printf("first logits");
  for (std::int64_t k = 0; k < kClasses; ++k) {
    std::printf("  %.3f", logits[k]);
  }
  std::printf(", class %d\nright: %g of %g\n", batch.classes[0], metrics.losses[0].correct,
              metrics.losses[0].counted);
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own_loop: %s\n", error.what());
    return 1;
  }
}
