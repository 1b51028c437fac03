#include "vdnn/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn::progress_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ProgressTest : public ::testing::Test {
 protected:
  ProgressBar bar(bool terminal, double seconds_between_lines = 0) {
    return {out_,
            {.terminal = terminal, .seconds_between_lines = seconds_between_lines, .now_seconds = [this] {
               return now_;
             }}};
  }
  static TrainingProgress at(std::uint64_t epoch, std::uint64_t step) {
    return {.epoch = epoch,
            .epochs = 3,
            .step = step,
            .steps = 100,
            .steps_left = (4 - epoch) * 100 - step,
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

TEST_F(ProgressTest, WritesOneLineAnEpochWhereNoOthersAreAskedFor) {
  ProgressBar progress = bar(false);
  for (std::uint64_t step = 1; step <= 99; ++step) {
    now_ += 10;
    progress.update(at(2, step));
  }
  EXPECT_THAT(take(), IsEmpty());
  now_ += 10;
  progress.update(at(2, 100));
  EXPECT_EQ(take(),
            "epoch 2/3  step 100/100  loss 0.4321  8123 images/s  memory 128 MiB of 512 MiB (25%)  stall 3%  "
            "ETA 0:16:40\n");
  progress.finish();
  EXPECT_THAT(take(), IsEmpty());
}

// Regression: only the ends of epochs wrote lines, so that a log showed nothing new for hours.
TEST_F(ProgressTest, WritesALineEachSoManySecondsWhereThereIsNoTerminal) {
  ProgressBar progress = bar(false, 30);
  std::vector<std::string> lines;
  for (std::uint64_t step = 1; step <= 9; ++step) {
    now_ += 8;
    progress.update(at(1, step));
    if (std::string line = take(); !line.empty()) {
      lines.push_back(std::move(line));
    }
  }
  // Lines are written after 32 and 64 seconds, since no step ends at 30 or 60.
  EXPECT_THAT(lines,
              ElementsAre("epoch 1/3  step 4/100  loss 0.4321  8123 images/s  memory 128 MiB of 512 MiB "
                          "(25%)  stall 3%  ETA 0:39:28\n",
                          "epoch 1/3  step 8/100  loss 0.4321  8123 images/s  memory 128 MiB of 512 MiB "
                          "(25%)  stall 3%  ETA 0:38:56\n"));
  progress.finish();
  EXPECT_THAT(take(), HasSubstr("step 9/100")) << "steps since the last line";
}

TEST_F(ProgressTest, TheEndOfAnEpochCountsAsALine) {
  ProgressBar progress = bar(false, 30);
  now_ += 25;
  progress.update(at(1, 100));
  EXPECT_THAT(take(), HasSubstr("epoch 1/3"));
  now_ += 25;
  progress.update(at(2, 1));
  EXPECT_THAT(take(), IsEmpty());
  now_ += 5;
  progress.update(at(2, 2));
  EXPECT_THAT(take(), HasSubstr("epoch 2/3  step 2/100"));
}

TEST_F(ProgressTest, RefusesATimeBetweenLinesBelowZero) {
  EXPECT_THROW(bar(false, -1), InvalidArgument);
  EXPECT_THROW(bar(false, std::numeric_limits<double>::quiet_NaN()), InvalidArgument);
}

TEST_F(ProgressTest, TheEtaCountsWhatCameBetweenTheSteps) {
  ProgressBar progress = bar(true);
  progress.update(at(1, 1));
  EXPECT_THAT(take(), Not(HasSubstr("ETA"))) << "one step alone has no rate";
  now_ += 1;
  progress.update(at(1, 2));
  EXPECT_THAT(take(), HasSubstr("  ETA 0:04:58  "));
  now_ += 3599;  // for example, an evaluation
  progress.update(at(1, 3));
  EXPECT_THAT(take(), HasSubstr("  ETA 148:30:00  ")) << "297 steps of 1800 seconds each";
}

TEST_F(ProgressTest, WhereNothingIsLeftThereIsNoEta) {
  ProgressBar progress = bar(false);
  progress.update(at(3, 99));
  now_ += 1;
  progress.update(at(3, 100));
  EXPECT_THAT(take(), AllOf(HasSubstr("step 100/100"), Not(HasSubstr("ETA"))));
}

TEST_F(ProgressTest, SaysNothingOfAStallThatIsNotKnown) {
  TrainingProgress untimed = at(2, 100);
  untimed.stall_fraction.reset();
  bar(false).update(untimed);
  EXPECT_THAT(take(), AllOf(HasSubstr("(25%)\n"), Not(HasSubstr("stall"))));
}

TEST_F(ProgressTest, RedrawsInPlaceOnATerminal) {
  ProgressBar progress = bar(true);
  progress.update(at(1, 49));
  take();
  now_ += 20;
  progress.update(at(1, 50));
  const std::string text = take();
  EXPECT_EQ(text, "\r\x1b[K[====    ] 50%  ETA 1:23:20  loss 0.432  8123 img/s  128 MiB (25%)  stall 3%");
  EXPECT_LT(text.size(), 80 + std::string("\r\x1b[K").size()) << "a wrapped line cannot be cleared";
}

TEST_F(ProgressTest, DrawsAtMostTenTimesASecond) {
  ProgressBar progress = bar(true);
  int draws = 0;
  for (std::uint64_t step = 1; step < 100; ++step) {
    progress.update(at(1, step));
    draws += take().empty() ? 0 : 1;
    now_ += 1.0 / 128;
  }
  // 99 steps take 0.77 seconds. The first is drawn at once, then every thirteenth.
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
  // Regression: the output showed the sign of the NaN that inf - inf makes.
  for (const double sign : {1.0, -1.0}) {
    odd.loss = std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
    progress.update(odd);
    EXPECT_THAT(take(), AllOf(HasSubstr("loss nan"), HasSubstr("of 0 bytes (0%)")));
  }
}

}  // namespace
}  // namespace vdnn::progress_test
