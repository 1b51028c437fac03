// Whole steps of every network of the zoo on the first GPU of this machine. The tests compare them with
// `cpu`, between policies, and with the prediction. (vgg116 to vgg416 are left out, since their weights alone
// need gigabytes.)

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <tuple>
#include <vector>

#include "tests/train/gpu_checks.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

constexpr std::int64_t kBatch = 4;

// Two libraries sum in different orders, and near-ties of maxima and ReLUs magnify the difference.
constexpr double kTolerance = 0.02;

std::vector<std::string> models() {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("vgg") && name.size() > 5; });
  return names;
}

class GpuZoo : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      test_ = {.model = {.model = GetParam(), .batch = kBatch}, .gpus = make_gpu_system()};
      test_.gpus->count();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << "no GPU to run on: " << error.what();
    }
  }

  GpuCase test_;
};

TEST_P(GpuZoo, TakesTheStepOfCpu) {
  expect_the_step_of_cpu(test_, kTolerance);
}

TEST_P(GpuZoo, HasOneResultAndThePredictedMemory) {
  expect_one_result_and_the_predicted_memory(test_);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuZoo, ::testing::ValuesIn(models()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// TF32 products have errors of 2^-11 instead of the 2^-24 of fp32, which decide more ties. Over some twenty
// layers that amounts to a tenth of a step.
constexpr double kTf32Tolerance = 0.2;

class GpuTf32 : public GpuZoo {
 protected:
  void SetUp() override {
    GpuZoo::SetUp();
    test_.tf32 = true;
  }
};

TEST_P(GpuTf32, TakesTheStepOfCpu) {
  expect_the_step_of_cpu(test_, kTf32Tolerance);
}

TEST_P(GpuTf32, HasOneResultAndThePredictedMemory) {
  expect_one_result_and_the_predicted_memory(test_);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTf32, ::testing::Values("lenet", "resnet20", "vgg16"));

// Each layer rounds its maps with relative errors of 2^-9 (bf16) or 2^-11 (fp16). A wrong step would be off
// by its whole length or more.
constexpr double kNarrowTolerance = 0.5;

class GpuNarrow : public ::testing::TestWithParam<std::tuple<std::string, DataType>> {
 protected:
  void SetUp() override {
    const auto& [model, storage] = GetParam();
    try {
      test_ = {.model = {.model = model, .batch = kBatch}, .gpus = make_gpu_system(), .storage = storage};
      test_.gpus->count();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << "no GPU to run on: " << error.what();
    }
  }

  GpuCase test_;
};

TEST_P(GpuNarrow, TakesTheStepOfCpu) {
  expect_the_step_of_cpu(test_, kNarrowTolerance);
}

TEST_P(GpuNarrow, HasOneResultAndThePredictedMemory) {
  expect_one_result_and_the_predicted_memory(test_);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuNarrow,
                         ::testing::Combine(::testing::Values("lenet", "resnet20", "unet", "mobilenet"),
                                            ::testing::Values(DataType::kBf16, DataType::kF16)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + to_string(std::get<1>(test.param));
                         });

using GpuMemory = GpuZoo;

TEST_P(GpuMemory, ShortageIsTold) {
  expect_out_of_memory_to_be_told(test_);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuMemory, ::testing::Values("resnet20", "vgg16"));

}  // namespace
}  // namespace vdnn::testing
