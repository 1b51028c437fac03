// Writes one training step of resnet20 to files. tests/python/resnet20_check.py repeats the step with
// PyTorch:
//
//   resnet20_dump DIRECTORY
//
// The files are before.safetensors and after.safetensors (checkpoints) and step.safetensors. The latter has
// the images, targets, logits, loss and every gradient of the step, and the loss and logits of inference
// after it.

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "tests/reference/tensor_file.h"
#include "vdnn/checkpoint.h"
#include "vdnn/session.h"

namespace vdnn {
namespace {

using testing::named;

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kExtent = 16;

// The zoo's network, with its logits as a result for the host.
RunOptions options_of() {
  return {.model = {.model = "resnet20", .input = {3, kExtent, kExtent}, .batch = kBatch},
          .device = "cpu",
          .threads = 1,
          .policy = Policy::kOffloadAll,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}, .results = {"fc.y"}}};
}

RunOptions with_gradients(RunOptions options, const std::vector<std::string>& gradients) {
  options.training.results.insert(options.training.results.end(), gradients.begin(), gradients.end());
  return options;
}

void dump(const std::filesystem::path& directory) {
  const PlannedRun plain = plan_run(options_of());
  std::vector<std::string> gradients;
  for (const TapeParameter& parameter : plain.tape->parameters()) {
    if (parameter.recipe.trainable) {
      gradients.push_back(plain.tape->value(parameter.value).name + ".gradient");
    }
  }
  Session session(plan_run(with_gradients(options_of(), gradients)), {.seed = 1});
  SplitMix64 random(7);
  std::vector<float> images(static_cast<std::size_t>(kBatch * kExtent * kExtent * 3));
  for (float& pixel : images) {
    pixel = random.symmetric();
  }
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < kBatch; ++i) {
    targets.push_back(static_cast<std::int32_t>(random.next() % kClasses));
  }

  save_checkpoint(directory / "before.safetensors", session);
  const std::array<Session::Bytes, 2> inputs{std::as_bytes(std::span(images)),
                                             std::as_bytes(std::span(targets))};
  const auto loss = static_cast<float>(session.step(inputs, 0.1F).loss);
  std::vector<testing::NamedTensor> step{
      named("images", DataType::kF32, {kBatch, kExtent, kExtent, 3}, images),
      named("targets", DataType::kI32, {kBatch}, targets),
      named("loss", DataType::kF32, {}, std::vector<float>{loss}),
      named("logits", DataType::kF32, {kBatch, kClasses}, session.result("fc.y"))};
  for (const std::string& gradient : gradients) {
    const std::string parameter = gradient.substr(0, gradient.rfind('.'));
    step.push_back(
        named(gradient, DataType::kF32, session.parameter(parameter).dims, session.result(gradient)));
  }
  save_checkpoint(directory / "after.safetensors", session);
  const auto inference_loss = static_cast<float>(session.evaluate(inputs).loss);
  step.push_back(named("inference_loss", DataType::kF32, {}, std::vector<float>{inference_loss}));
  testing::write_tensors(directory / "step.safetensors", step);
}

}  // namespace
}  // namespace vdnn

int main(int argc, char** argv) {
  return vdnn::testing::dump_main(argc, argv, vdnn::dump);
}
