// The vDNN paper's figures (Rhu et al. 2016), with the paper's operands and its accounting.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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
  double baseline_mib(AlgorithmPreference preference = AlgorithmPreference::kMemory) const {
    const Plan plan = make_plan(*tape_, {.policy = Policy::kBaseline, .preference = preference});
    return static_cast<double>(paper_baseline_bytes(*tape_, plan)) / kMiB;
  }
  double weight_mib() const { return static_cast<double>(tape_->weight_bytes()) / kMiB; }
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

// The paper offloads X of CONV and POOL, the images included. ReLU is in place, so its Y is the X of the next
// layer. X of the classifier (pool5.y) stays.
TEST(Paper, AlexnetOffloadsWhatConvolutionsAndPoolingRead) {
  const Paper alexnet("alexnet", 128);
  EXPECT_EQ(alexnet.offloaded(Policy::kOffloadConv),
            (std::set<std::string>{"images", "pool1.y", "pool2.y", "relu3.y", "relu4.y"}));
  EXPECT_EQ(alexnet.offloaded(Policy::kOffloadAll),
            (std::set<std::string>{"images", "relu1.y", "pool1.y", "relu2.y", "pool2.y", "relu3.y", "relu4.y",
                                   "relu5.y"}));
}

// The numbers are computed from the shapes. The paper's figures show about 350 MiB of offloads under `all`,
// 155 MiB under `conv`, and 780 MiB for the baseline.
TEST(Paper, Alexnet) {
  const Paper alexnet("alexnet", 128);
  expect_within_percent(alexnet.offload_mib(Policy::kOffloadAll), 348.9);
  expect_within_percent(alexnet.offload_mib(Policy::kOffloadConv), 164.9);
  expect_within_percent(alexnet.baseline_mib(), 780);
}

// The paper's VGG-16. The numbers are read off the paper's figures.
TEST(Paper, Vgg19) {
  const Paper vgg("vgg19", 64);
  expect_within_percent(vgg.offload_mib(Policy::kOffloadAll), 4018);
  expect_within_percent(vgg.offload_mib(Policy::kOffloadConv), 2535);
  expect_within_percent(vgg.baseline_mib(), 6149);
}

// The numbers in the rows of the documentation that name a model and a batch.
std::map<std::pair<std::string, std::int64_t>, std::vector<double>> documented_figures() {
  std::ifstream page(VDNN_DOCS_DIRECTORY "/zoo.md");
  static const std::regex row(R"(\| ([a-z0-9]+) \| (\d+) \|(( [0-9.]+ \|)+))");
  std::map<std::pair<std::string, std::int64_t>, std::vector<double>> rows;
  for (std::string line; std::getline(page, line);) {
    std::smatch match;
    if (std::regex_match(line, match, row)) {
      std::string cells = match[3];
      std::ranges::replace(cells, '|', ' ');
      std::istringstream numbers(cells);
      rows[{match[1], std::stoll(match[2])}] = {std::istream_iterator<double>(numbers), {}};
    }
  }
  return rows;
}

TEST(Paper, ThePageOfTheZooSaysWhatComesOut) {
  const auto rows = documented_figures();
  for (const auto& [network, figures] : rows) {
    const Paper paper(network.first, network.second);
    const std::vector<double> computed{
        paper.offload_mib(Policy::kOffloadAll), paper.offload_mib(Policy::kOffloadConv), paper.baseline_mib(),
        paper.baseline_mib(AlgorithmPreference::kPerformance), paper.weight_mib()};
    EXPECT_THAT(figures, ::testing::Pointwise(::testing::DoubleNear(0.051), computed))
        << network.first << "(" << network.second << ")";
  }
  EXPECT_EQ(rows.size(), 13u) << "one row per network and batch of the paper; VGG has three batches";
}

TEST(Paper, BytesAreProportionalToTheBatch) {
  EXPECT_DOUBLE_EQ(Paper("vgg19", 256).offload_mib(Policy::kOffloadAll),
                   4 * Paper("vgg19", 64).offload_mib(Policy::kOffloadAll));
}

}  // namespace
}  // namespace vdnn
