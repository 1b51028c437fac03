#include "vdnn/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ProgressTest : public ::testing::Test {
 protected:
  ProgressBar bar(bool terminal) {
    return {out_, terminal, [this] { return now_; }};
  }
  static TrainingProgress at(std::uint64_t epoch, std::uint64_t step) {
    return {.epoch = epoch,
            .epochs = 3,
            .step = step,
            .steps = 100,
            .loss = 0.43211,
            .images_per_second = 8123.4,
            .memory_bytes = std::uint64_t{128} << 20,
            .budget_bytes = std::uint64_t{512} << 20,
            .stall_fraction = 0.031};
  }
  std::string take() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }

  double now_ = 1000;
  std::ostringstream out_;
};

TEST_F(ProgressTest, WritesOneLineAnEpochWhereThereIsNoTerminal) {
  ProgressBar progress = bar(false);
  for (std::uint64_t step = 1; step < 100; ++step) {
    now_ += 10;
    progress.update(at(2, step));
  }
  EXPECT_THAT(take(), IsEmpty());
  progress.update(at(2, 100));
  EXPECT_EQ(
      take(),
      "epoch 2/3  step 100/100  loss 0.4321  8123 images/s  memory 128 MiB of 512 MiB (25%)  stall 3%\n");
  progress.finish();
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(ProgressTest, SaysNothingOfAStallThatIsNotKnown) {
  TrainingProgress untimed = at(2, 100);
  untimed.stall_fraction.reset();
  bar(false).update(untimed);
  EXPECT_THAT(take(), AllOf(HasSubstr("(25%)\n"), Not(HasSubstr("stall"))));
}

TEST_F(ProgressTest, RedrawsInPlaceOnATerminal) {
  ProgressBar progress = bar(true);
  progress.update(at(1, 50));
  const std::string text = take();
  EXPECT_THAT(text, AllOf(StartsWith("\r"), HasSubstr("[======      ] 50%"), HasSubstr("stall 3%"),
                          Not(HasSubstr("\n"))));
  EXPECT_LT(text.size(), 80 + std::string("\r\x1b[K").size()) << "what wraps cannot be cleared";
}

TEST_F(ProgressTest, DrawsAtMostTenTimesASecond) {
  ProgressBar progress = bar(true);
  int draws = 0;
  for (std::uint64_t step = 1; step < 100; ++step) {
    progress.update(at(1, step));
    draws += take().empty() ? 0 : 1;
    now_ += 1.0 / 128;
  }
  // 99 steps in 0.77 seconds: the first at once, then each thirteenth.
  EXPECT_EQ(draws, 8);
}

TEST_F(ProgressTest, AlwaysShowsTheEndOfAnEpoch) {
  ProgressBar progress = bar(true);
  progress.update(at(1, 99));
  take();
  progress.update(at(1, 100));
  EXPECT_THAT(take(), AllOf(HasSubstr("step 100/100"), EndsWith("\n")));
}

TEST_F(ProgressTest, FinishShowsAnEpochLeftInTheMiddleOnce) {
  for (const bool terminal : {false, true}) {
    ProgressBar progress = bar(terminal);
    progress.update(at(1, 41));
    progress.update(at(1, 42));
    take();
    progress.finish();
    EXPECT_THAT(take(), AllOf(HasSubstr("step 42/100"), EndsWith("\n")));
    progress.finish();
    EXPECT_THAT(take(), IsEmpty());
  }
}

TEST_F(ProgressTest, WithoutAnUpdateThereIsNothingToFinish) {
  ProgressBar progress = bar(true);
  progress.finish();
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(ProgressTest, ABudgetOfNothingAndALossThatIsNotANumberAreShown) {
  ProgressBar progress = bar(false);
  TrainingProgress odd = at(1, 100);
  odd.budget_bytes = 0;
  // The sign of what inf - inf leaves once was shown.
  for (const double sign : {1.0, -1.0}) {
    odd.loss = std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
    progress.update(odd);
    EXPECT_THAT(take(), AllOf(HasSubstr("loss nan"), HasSubstr("of 0 bytes (0%)")));
  }
}

}  // namespace
}  // namespace vdnn
