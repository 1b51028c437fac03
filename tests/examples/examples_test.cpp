// Runs the examples as a reader would; each must show what its first lines promise.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "tests/process.h"

namespace vdnn {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::Le;
using ::testing::SizeIs;

std::string run_example(const std::string& name) {
  const testing::Outcome outcome = testing::run_process(std::string(VDNN_EXAMPLES_DIRECTORY) + "/" + name);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  return outcome.text;
}

// The number that follows each occurrence of `label`.
std::vector<double> numbers_after(const std::string& text, const std::string& label) {
  const std::regex pattern(label + R"( +(-?[0-9.]+(?:e[-+]?[0-9]+)?))");
  std::vector<double> numbers;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    numbers.push_back(std::stod((*match)[1]));
  }
  return numbers;
}

// Fails, and prints the text, unless `label` occurs exactly once.
double number_after(const std::string& text, const std::string& label) {
  const std::vector<double> numbers = numbers_after(text, label);
  EXPECT_THAT(numbers, SizeIs(1)) << label << " in:\n" << text;
  return numbers.empty() ? std::nan("") : numbers[0];
}

TEST(Examples, TrainUnderABudgetTakesThePredictedPeakAndLearns) {
  const std::string text = run_example("train_under_a_budget");
  EXPECT_EQ(number_after(text, "measured peak"), number_after(text, "predicted peak"));
  EXPECT_LT(number_after(text, "measured peak"), 0.75 * number_after(text, "baseline peak"));
  const std::vector<double> losses = numbers_after(text, "loss");
  ASSERT_THAT(losses, SizeIs(4));
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Examples, OwnLoopStopsByItsOwnRuleAndKeepsItsConstraint) {
  const std::string text = run_example("own_loop");
  EXPECT_LT(number_after(text, "stopped after"), 300) << "the loss stops it, not the limit";
  EXPECT_THAT(numbers_after(text, "weights"), Each(Le(1.5001)));
  EXPECT_THAT(numbers_after(text, "gradient"), Each(Gt(0)));
  EXPECT_GE(number_after(text, "right:"), 14) << "of 16 unseen samples";
}

TEST(Examples, CustomLayerHasTheGradientOfItsForwardPass) {
  const std::string text = run_example("custom_layer");
  const std::vector<double> gradients = numbers_after(text, "gradient");
  const std::vector<double> differences = numbers_after(text, "difference");
  ASSERT_THAT(gradients, SizeIs(8));
  ASSERT_THAT(differences, SizeIs(8));
  for (std::size_t channel = 0; channel < gradients.size(); ++channel) {
    // Central differences over 0.0625 have an error of the order of 0.0625 squared, and the loss is rounded
    // to a float.
    EXPECT_NEAR(gradients[channel], differences[channel], 0.01 * std::abs(gradients[channel]) + 2e-5);
  }
  EXPECT_GT(number_after(text, "would take"), 0) << "planned on a simulated GPU";
  EXPECT_LT(numbers_after(text, "loss").back(), 0.1);
}

}  // namespace
}  // namespace vdnn
