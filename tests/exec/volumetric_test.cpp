// Trains through oneDNN in three spatial dimensions. No network of the zoo does this yet, so the test
// assembles the parts by hand.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/random.h"
#include "tests/exec/executor_rig.h"
#include "vdnn/checker.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/network.h"

namespace vdnn::testing::volumetric_test {
namespace {

std::shared_ptr<const Tape> volumetric_tape(const OpCatalog& catalog) {
  const ConvolutionSpec same{.filters = 8, .kernel = {3, 3, 3}, .stride = {1, 1, 1}, .padding = {1, 1, 1}};
  NetworkBuilder net("volumes", {2, 1, 6, 8, 8});
  Tensor x = net.relu("relu1", net.convolution("conv1", net.input(), same));
  x = net.relu("relu2", net.convolution("conv2", x, same));
  x = net.pooling(
      "pool", x, {.mode = PoolingMode::kMax, .kernel = {2, 2, 2}, .stride = {2, 2, 2}, .padding = {0, 0, 0}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 3}));
  return lower_to_tape(std::move(net).build(), catalog, {.optimizer = SgdSpec{.momentum = 0.9F}});
}

std::vector<std::vector<float>> small_parameters(const Tape& tape) {
  SplitMix64 random(1);
  std::vector<std::vector<float>> result;
  for (const TapeParameter& parameter : tape.parameters()) {
    result.emplace_back(parameter.recipe.type.elements());
    for (float& value : result.back()) {
      value = 0.1F * random.symmetric();
    }
  }
  return result;
}

struct VolumetricRun {
  std::vector<double> losses;
  std::vector<std::vector<float>> parameters;
};

VolumetricRun train_volumes(Policy policy) {
  const auto library = make_cpu_ops({.threads = 1});
  const auto tape = volumetric_tape(library->catalog());
  const Schedule schedule = schedule_of(*tape, policy);
  require_valid(*tape, schedule);
  const auto program = library->compile(*tape, schedule.algorithms);
  const auto device = make_cpu_device({});
  ExecutorRig rig(*device, *tape);
  const StreamId stream = rig.streams[StreamRole::kCompute];
  rig.parameters.upload(rig.pinned, stream, program.get(), small_parameters(*tape));
  VolumetricRun result;
  {
    Executor executor(rig.parts(*tape, schedule, program.get()));
    const auto inputs = rig.inputs.of_step(0);
    auto* const images = pointer_to<float>(inputs[0].begin);
    for (std::uint64_t i = 0; i < inputs[0].bytes / sizeof(float); ++i) {
      images[i] = static_cast<float>(i % 7) - 3;
    }
    auto* const targets = pointer_to<std::int32_t>(inputs[1].begin);
    targets[0] = 0;
    targets[1] = 2;
    for (int step = 0; step < 6; ++step) {
      result.losses.push_back(executor.wait(executor.submit(inputs, {.learning_rate = 0.05F})).loss);
    }
  }
  result.parameters = rig.parameters.download(rig.pinned, stream, *program);
  return result;
}

TEST(VolumetricTraining, EndsWithTheSameParametersUnderEveryPolicy) {
  const VolumetricRun reference = train_volumes(Policy::kOffloadNone);
  EXPECT_LT(reference.losses.back(), reference.losses.front());
  for (const Policy policy : kPolicies) {
    const VolumetricRun run = train_volumes(policy);
    EXPECT_EQ(run.parameters, reference.parameters) << to_string(policy);
    EXPECT_EQ(run.losses, reference.losses) << to_string(policy);
  }
}

}  // namespace
}  // namespace vdnn::testing::volumetric_test
