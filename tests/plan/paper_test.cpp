// The vDNN paper's figures (Rhu et al. 2016), by its operands and its accounting.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "vdnn/classic_catalog.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/zoo.h"

namespace vdnn {
namespace {

constexpr double kMiB = 1 << 20;

class Paper {
 public:
  Paper(const std::string& model, std::int64_t batch)
      : tape_(lower_to_tape(make_model({.model = model, .batch = batch}), *make_classic_catalog(), {})) {}

  double offload_mib(Policy policy) const {
    const Plan plan = memory_optimal(policy);
    return static_cast<double>(offload_bytes(*tape_, make_schedule(*tape_, plan))) / kMiB;
  }
  double baseline_mib() const {
    return static_cast<double>(paper_baseline_bytes(*tape_, memory_optimal(Policy::kBaseline))) / kMiB;
  }
  std::set<std::string> offloaded(Policy policy) const {
    std::set<std::string> names;
    for (const Transfer& transfer : memory_optimal(policy).transfers) {
      names.insert(tape_->value(transfer.value).name);
    }
    return names;
  }

 private:
  Plan memory_optimal(Policy policy) const {
    return make_plan(*tape_, {.policy = policy, .preference = AlgorithmPreference::kMemory});
  }

  std::shared_ptr<const Tape> tape_;
};

void expect_within_percent(double value, double figure) {
  EXPECT_NEAR(value, figure, figure / 100);
}

// X of CONV and POOL, the images included. ReLU is in place: its Y is the X of what follows. X of the
// classifier (pool5.y) stays.
TEST(Paper, AlexnetOffloadsWhatConvolutionsAndPoolingRead) {
  const Paper alexnet("alexnet", 128);
  EXPECT_EQ(alexnet.offloaded(Policy::kOffloadConv),
            (std::set<std::string>{"images", "pool1.y", "pool2.y", "relu3.y", "relu4.y"}));
  EXPECT_EQ(alexnet.offloaded(Policy::kOffloadAll),
            (std::set<std::string>{"images", "relu1.y", "pool1.y", "relu2.y", "pool2.y", "relu3.y", "relu4.y",
                                   "relu5.y"}));
}

// Computed from the shapes; measured off the figures: 350 and 155 MiB, 780 MiB.
TEST(Paper, Alexnet) {
  const Paper alexnet("alexnet", 128);
  expect_within_percent(alexnet.offload_mib(Policy::kOffloadAll), 348.9);
  expect_within_percent(alexnet.offload_mib(Policy::kOffloadConv), 164.9);
  expect_within_percent(alexnet.baseline_mib(), 780);
}

// What the paper calls VGG-16. Measured off the figures.
TEST(Paper, Vgg19) {
  const Paper vgg("vgg19", 64);
  expect_within_percent(vgg.offload_mib(Policy::kOffloadAll), 4018);
  expect_within_percent(vgg.offload_mib(Policy::kOffloadConv), 2535);
  expect_within_percent(vgg.baseline_mib(), 6149);
}

TEST(Paper, BytesAreProportionalToTheBatch) {
  EXPECT_DOUBLE_EQ(Paper("vgg19", 256).offload_mib(Policy::kOffloadAll),
                   4 * Paper("vgg19", 64).offload_mib(Policy::kOffloadAll));
}

}  // namespace
}  // namespace vdnn
