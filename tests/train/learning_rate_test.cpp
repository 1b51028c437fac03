#include "vdnn/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "vdnn/error.h"

namespace vdnn::learning_rate_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSteps = 1000;
constexpr double kBase = 0.3;

LearningRateSchedule schedule(const std::string& text, std::uint64_t total_steps = kSteps) {
  return {text, {.base_rate = kBase, .total_steps = total_steps, .steps_per_epoch = 10}};
}

float rounded(double rate) {
  return static_cast<float>(rate);
}

TEST(LearningRateSchedule, ConstantIsTheBaseRate) {
  const LearningRateSchedule constant = schedule("constant");
  for (const std::uint64_t step : {std::uint64_t{0}, kSteps - 1, kSteps, ~std::uint64_t{0}}) {
    EXPECT_EQ(constant.rate(step), rounded(kBase));
  }
}

TEST(LearningRateSchedule, StepFallsEverySoManySteps) {
  const LearningRateSchedule by_ten = schedule("step:30");
  EXPECT_EQ(by_ten.rate(0), rounded(kBase));
  EXPECT_EQ(by_ten.rate(29), rounded(kBase));
  EXPECT_EQ(by_ten.rate(30), rounded(kBase * 0.1));
  EXPECT_EQ(by_ten.rate(59), rounded(kBase * 0.1));
  EXPECT_EQ(by_ten.rate(60), rounded(kBase * 0.1 * 0.1));
  const LearningRateSchedule by_half = schedule("step:1:0.5");
  for (std::uint64_t step = 0; step < 60; ++step) {
    EXPECT_EQ(by_half.rate(step), rounded(std::ldexp(kBase, -static_cast<int>(step))));
  }
  EXPECT_EQ(by_half.rate(~std::uint64_t{0}), 0.0F);
  EXPECT_EQ(schedule("step:1:1").rate(~std::uint64_t{0}), rounded(kBase));
}

TEST(LearningRateSchedule, CosineHasItsClosedForm) {
  const LearningRateSchedule to_zero = schedule("cosine", 101);
  EXPECT_EQ(to_zero.rate(0), rounded(kBase));
  EXPECT_FLOAT_EQ(to_zero.rate(50), rounded(kBase / 2));
  EXPECT_EQ(to_zero.rate(100), 0.0F);
  const LearningRateSchedule to_some = schedule("cosine:0.1", 101);
  EXPECT_EQ(to_some.rate(0), rounded(kBase));
  EXPECT_EQ(to_some.rate(100), rounded(kBase * 0.1));
  for (std::uint64_t step = 0; step <= 100; ++step) {
    const double angle = std::numbers::pi * static_cast<double>(step) / 100;
    EXPECT_NEAR(to_some.rate(step), kBase * (0.1 + 0.9 * 0.5 * (1 + std::cos(angle))), 1e-7) << step;
  }
}

TEST(LearningRateSchedule, CosineStaysAtItsEnd) {
  const LearningRateSchedule cosine = schedule("cosine:0.25");
  EXPECT_EQ(cosine.rate(kSteps), cosine.rate(kSteps - 1));
  EXPECT_EQ(cosine.rate(~std::uint64_t{0}), rounded(kBase * 0.25));
  EXPECT_EQ(schedule("cosine:1").rate(kSteps / 3), rounded(kBase));
}

TEST(LearningRateSchedule, CosineOverOneStepOrNoneIsTheBaseRate) {
  EXPECT_EQ(schedule("cosine", 1).rate(0), rounded(kBase));
  EXPECT_EQ(schedule("cosine", 0).rate(0), rounded(kBase));
  EXPECT_EQ(schedule("cosine,warmup:4", 5).rate(4), rounded(kBase));
}

TEST(LearningRateSchedule, WarmupRisesLinearlyToTheBaseRate) {
  const LearningRateSchedule warm = schedule("constant,warmup:7");
  for (std::uint64_t step = 0; step < 7; ++step) {
    EXPECT_FLOAT_EQ(warm.rate(step), rounded(kBase * static_cast<double>(step + 1) / 7)) << step;
  }
  EXPECT_EQ(warm.rate(6), rounded(kBase));
  EXPECT_EQ(warm.rate(7), rounded(kBase));
  EXPECT_EQ(schedule("constant,warmup:1").rate(0), rounded(kBase));
}

TEST(LearningRateSchedule, TheOthersCountFromTheEndOfTheWarmup) {
  const LearningRateSchedule warm_step = schedule("step:30:0.5,warmup:20");
  const LearningRateSchedule cold_step = schedule("step:30:0.5");
  const LearningRateSchedule warm_cosine = schedule("cosine:0.1,warmup:20");
  const LearningRateSchedule cold_cosine = schedule("cosine:0.1", kSteps - 20);
  for (std::uint64_t step = 20; step < kSteps; ++step) {
    EXPECT_EQ(warm_step.rate(step), cold_step.rate(step - 20)) << step;
    EXPECT_EQ(warm_cosine.rate(step), cold_cosine.rate(step - 20)) << step;
  }
  EXPECT_EQ(warm_cosine.rate(kSteps - 1), rounded(kBase * 0.1));
}

TEST(LearningRateSchedule, AWarmupLongerThanTheRunNeverEnds) {
  const LearningRateSchedule warm = schedule("cosine,warmup:2000");
  EXPECT_EQ(warm.rate(kSteps - 1), rounded(kBase * 0.5));
  EXPECT_EQ(warm.rate(5000), rounded(kBase)) << "after the warm-up no steps are left for a decay";
}

TEST(LearningRateSchedule, EpochsAreStepsTimesTheirLength) {
  const LearningRateSchedule epochs = schedule("step:3e:0.5,warmup:2e");
  const LearningRateSchedule steps = schedule("step:30:0.5,warmup:20");
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(epochs.rate(step), steps.rate(step)) << step;
  }
}

TEST(LearningRateSchedule, NeverRisesAfterTheWarmupNorFallsInIt) {
  for (const std::string shape : {"step:7:0.9", "step:50", "cosine", "cosine:0.1", "cosine:0.3"}) {
    const LearningRateSchedule rates = schedule(shape + ",warmup:123");
    for (std::uint64_t step = 1; step < kSteps; ++step) {
      const float change = rates.rate(step) - rates.rate(step - 1);
      EXPECT_TRUE(step < 123 ? change > 0 : change <= 0) << shape << " at step " << step;
    }
    EXPECT_GE(rates.rate(kSteps - 1), 0.0F);
  }
}

// Resuming requires that step n has one rate, independent of the object and of earlier calls.
TEST(LearningRateSchedule, DependsOnTheStepAlone) {
  const LearningRateSchedule forwards = schedule("cosine:0.1,warmup:5e");
  const LearningRateSchedule backwards = schedule("cosine:0.1,warmup:50");
  std::vector<float> rates(kSteps);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    rates[step] = forwards.rate(step);
  }
  for (std::uint64_t step = kSteps; step-- > 0;) {
    EXPECT_EQ(backwards.rate(step), rates[step]) << step;
  }
}

TEST(LearningRateSchedule, RejectsEveryOtherText) {
  for (const std::string text : {"",
                                 " constant",
                                 "constant ",
                                 "Constant",
                                 "constant:1",
                                 "linear",
                                 "step",
                                 "step:",
                                 "step:0",
                                 "step:-1",
                                 "step:+1",
                                 "step:1.5",
                                 "step:e",
                                 "step:0e",
                                 "step:1ee",
                                 "step:1E",
                                 "step:18446744073709551616",
                                 "step:30:",
                                 "step:30:0",
                                 "step:30:-0.1",
                                 "step:30:1.1",
                                 "step:30:nan",
                                 "step:30:inf",
                                 "step:30:0.1x",
                                 "step:30: 0.1",
                                 "step:30:0.1:1",
                                 "cosine:",
                                 "cosine:-0.1",
                                 "cosine:1.01",
                                 "cosine:nan",
                                 "cosine:0x1",
                                 "cosine:0.1:0.1",
                                 "constant,",
                                 ",warmup:5",
                                 "warmup:5",
                                 "constant,warmup",
                                 "constant,warmup:",
                                 "constant,warmup:0",
                                 "constant,warmup:5x",
                                 "constant,warmup:5:5",
                                 "constant, warmup:5",
                                 "constant,cosine",
                                 "constant,warmup:5,warmup:5",
                                 "constant,warmup:5,"}) {
    try {
      schedule(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("constant, step:EVERY[:FACTOR]"),
                                      HasSubstr("cosine[:FINAL_FRACTION]"), HasSubstr("warmup:STEPS")))
          << text;
    }
  }
}

TEST(LearningRateSchedule, EpochsNeedALengthThatFits) {
  const LearningRateRun unknown{.base_rate = kBase, .total_steps = kSteps};
  EXPECT_NO_THROW(LearningRateSchedule("step:3,warmup:2", unknown));
  EXPECT_THROW(LearningRateSchedule("step:3e", unknown), InvalidArgument);
  EXPECT_THROW(LearningRateSchedule("constant,warmup:3e", unknown), InvalidArgument);
  EXPECT_THROW(schedule("step:1844674407370955162e"), InvalidArgument);
}

TEST(LearningRateSchedule, TheBaseRateIsAFiniteNumber) {
  for (const double rate : {-0.1, std::numeric_limits<double>::infinity(), std::nan(""), 1e39}) {
    EXPECT_THROW(LearningRateSchedule("constant", {.base_rate = rate}), InvalidArgument) << rate;
  }
  EXPECT_EQ(LearningRateSchedule("constant", {.base_rate = 0}).rate(0), 0.0F);
  // Regression: the error was "must be finite", although the number is finite.
  try {
    LearningRateSchedule("constant", {.base_rate = 1e39});
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "a learning rate of 1e+39: it must be a number from 0 to 3.40282e+38");
  }
}

}  // namespace
}  // namespace vdnn::learning_rate_test
