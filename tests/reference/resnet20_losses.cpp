// Writes fifty steps of resnet20 to files. tests/python/resnet20_losses.py repeats the training with PyTorch:
//
//   resnet20_losses DIRECTORY
//
// before.safetensors is a checkpoint before the first step. batches.safetensors has the images and targets of
// all steps, the first of Fashion-MNIST's training set in their order. losses.safetensors has the loss of
// each step in fp32 and in bf16, both starting from that checkpoint's weights.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tests/reference/tensor_file.h"
#include "vdnn/checkpoint.h"
#include "vdnn/dataset.h"
#include "vdnn/session.h"

namespace vdnn {
namespace {

constexpr std::int64_t kSteps = 50;
constexpr std::int64_t kSamples = 128;  // per step
constexpr std::int64_t kSide = 28;
constexpr std::int64_t kClothes = 10;  // the data set's classes
constexpr float kRate = 0.02F;

struct Batches {
  std::vector<float> images;
  std::vector<std::int32_t> targets;

  std::vector<Session::Bytes> of_step(std::int64_t step) const {
    constexpr std::int64_t kPixels = kSamples * kSide * kSide;
    const std::span<const float> pixels(images);
    const std::span<const std::int32_t> classes(targets);
    return {std::as_bytes(pixels.subspan(static_cast<std::size_t>(step * kPixels), kPixels)),
            std::as_bytes(classes.subspan(static_cast<std::size_t>(step * kSamples), kSamples))};
  }
};

Batches read_batches() {
  const DatasetSplits data = open_dataset(
      {.text = "fashion-mnist", .sample_dims = {1, kSide, kSide}, .target_dims = {}, .classes = kClothes});
  constexpr std::size_t kImage = kSide * kSide;
  constexpr std::size_t kImages = kSteps * kSamples;
  Batches batches{.images = std::vector<float>(kImages * kImage),
                  .targets = std::vector<std::int32_t>(kImages)};
  for (std::size_t i = 0; i < kImages; ++i) {
    data.training->read({.index = i}, std::span(batches.images).subspan(i * kImage, kImage),
                        std::span(batches.targets).subspan(i, 1));
  }
  return batches;
}

Session open_session(DataType storage) {
  return Session(plan_run({.model = {.model = "resnet20", .input = {1, kSide, kSide}, .batch = kSamples},
                           .device = "cpu",
                           .policy = Policy::kOffloadAll,
                           .training = {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F},
                                        .precision = {.storage = storage, .fp32_layers = {}}}}),
                 {.seed = 1});
}

std::vector<float> train(Session& session, const Batches& batches) {
  std::vector<float> losses;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    losses.push_back(static_cast<float>(session.step(batches.of_step(step), kRate).loss));
  }
  return losses;
}

void dump_losses(const std::filesystem::path& directory) {
  const Batches batches = read_batches();
  testing::write_tensors(
      directory / "batches.safetensors",
      {testing::named("images", DataType::kF32, {kSteps, kSamples, kSide, kSide, 1}, batches.images),
       testing::named("targets", DataType::kI32, {kSteps, kSamples}, batches.targets)});
  Session fp32 = open_session(DataType::kF32);
  save_checkpoint(directory / "before.safetensors", fp32);
  Session bf16 = open_session(DataType::kBf16);
  bf16.restore(fp32.state());
  testing::write_tensors(directory / "losses.safetensors",
                         {testing::named("fp32", DataType::kF32, {kSteps}, train(fp32, batches)),
                          testing::named("bf16", DataType::kF32, {kSteps}, train(bf16, batches))});
}

}  // namespace
}  // namespace vdnn

int main(int argc, char** argv) {
  return vdnn::testing::dump_main(argc, argv, vdnn::dump_losses);
}
