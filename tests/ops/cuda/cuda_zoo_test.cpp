// Every network of the zoo on the catalog of CUDA, with the engines that cuDNN listed for an H200: it lowers,
// is planned under every policy, and its schedules run on `sim`, in orders drawn at random, without a race, a
// wrong version or a leak. No memory is touched.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include "exec/permitted_orders.h"
#include "src/ops/cuda/cuda_catalog.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/cuda/recorded_engines.h"
#include "vdnn/checker.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {
namespace {

std::shared_ptr<const cuda::EngineSource> recorded_h200() {
  const auto gpus = cuda::known_gpus();
  const auto h200 = std::ranges::find(gpus, "h200", &cuda::KnownGpu::name);
  return std::make_shared<cuda::RecordedEngines>(h200->recorded_engines);
}

class CudaZoo : public ::testing::TestWithParam<std::string> {
 protected:
  // Engines are recorded for the batch that models have by default.
  const Network network_ = make_model({.model = GetParam()});
  const cuda::CudaCatalog catalog_{recorded_h200()};
};

TEST_P(CudaZoo, RunsUnderEveryPolicyInOrder) {
  const auto tape = lower_to_tape(network_, catalog_, {.optimizer = SgdSpec{.momentum = 0.9F}});
  std::uint64_t seed = 1;
  for (const Policy policy : kPolicies) {
    for (const auto preference : {AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance}) {
      SCOPED_TRACE(to_string(policy) + ", " + to_string(preference));
      const Schedule schedule =
          make_schedule(*tape, make_plan(*tape, {.policy = policy, .preference = preference}));
      const std::vector<std::string> findings = check_schedule(*tape, schedule);
      ASSERT_TRUE(findings.empty()) << findings.front();
      const auto device = make_random_order_device(seed++, Check::kBoth);
      EXPECT_EQ(run_steps(*device, *tape, schedule), 0U);
      ASSERT_TRUE(device->findings().empty()) << device->findings().front().text;
    }
  }
}

TEST_P(CudaZoo, EvaluationHoldsParametersAlike) {
  const auto training = lower_to_tape(network_, catalog_, {});
  const auto evaluation = lower_to_evaluation_tape(network_, catalog_);
  ASSERT_EQ(training->parameters().size(), evaluation->parameters().size());
  for (std::size_t i = 0; i < training->parameters().size(); ++i) {
    EXPECT_EQ(training->parameters()[i].recipe.storage_layout,
              evaluation->parameters()[i].recipe.storage_layout);
    EXPECT_EQ(training->parameters()[i].recipe.storage_bytes,
              evaluation->parameters()[i].recipe.storage_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaZoo, ::testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace vdnn::testing
