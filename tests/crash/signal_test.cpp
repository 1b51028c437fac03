// `vdnn train` that is asked by signals to save or to end. When a signal strikes depends on the machine; what
// must hold does not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/crash/command.h"
#include "tests/mpirun.h"
#include "tests/temporary_directory.h"
#include "vdnn/checkpoint.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class Signals : public testing::TemporaryDirectory {
 protected:
  static constexpr std::uint64_t kSteps = 30;

  fs::path checkpoint() const { return directory_ / "checkpoint"; }
  std::uint64_t saved_step() const {
    return fs::exists(checkpoint()) ? Checkpoint(checkpoint()).info().step : 0;
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> result = {VDNN_COMMAND,
                                       "train",
                                       "--model=resnet20",
                                       "--data=synthetic",
                                       "--batch=16",
                                       "--threads=1",
                                       "--memory=64MiB",
                                       "--policy=all",
                                       "--steps=" + std::to_string(kSteps),
                                       "--json=" + (directory_ / "json").string()};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  std::vector<std::string> saving() const { return arguments({"--save=" + checkpoint().string()}); }
  std::vector<json> lines() const {
    std::vector<json> result;
    const std::string text = fs::exists(directory_ / "json") ? read("json") : "";
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      result.push_back(json::parse(text.substr(begin, end - begin)));
    }
    return result;
  }
  // Until so many steps are reported.
  void wait_for_steps(testing::Command& command, std::size_t steps) const {
    while (command.running() && lines().size() < steps) {
      ::usleep(1000);
    }
    ASSERT_TRUE(command.running()) << read("output");
  }
  std::string weights_of(const std::vector<std::string>& all) const {
    fs::remove(directory_ / "json");
    testing::Command command(all, directory_ / "output");
    EXPECT_EQ(command.wait(), 0) << read("output");
    return lines().back()["weights_sha256"];
  }

  // Ends by the signal with that status, having saved a step; what it goes on to has the usual weights.
  void expect_graceful_end(int signal, int status) {
    {
      testing::Command command(saving(), directory_ / "output");
      wait_for_steps(command, 3);
      command.send(signal);
      EXPECT_EQ(command.wait(), status) << read("output");
    }
    const std::uint64_t saved = saved_step();
    EXPECT_GE(saved, 3U);
    EXPECT_LT(saved, kSteps);
    ASSERT_FALSE(lines().empty());
    const json summary = lines().back();
    EXPECT_EQ(summary["type"], "summary");
    EXPECT_EQ(lines().at(lines().size() - 2)["step"], saved) << "what is saved is the last step";
    EXPECT_THAT(read("output"), HasSubstr("after step " + std::to_string(saved) + ", which is saved"));
    EXPECT_THAT(read("output"), HasSubstr("goes on with: vdnn train --model resnet20"));
    EXPECT_THAT(read("output"), HasSubstr(" --resume " + checkpoint().string()));
    std::vector<std::string> resumed = saving();
    resumed.push_back("--resume=" + checkpoint().string());
    EXPECT_EQ(weights_of(resumed), weights_of(arguments({})));
  }
};

TEST_F(Signals, InterruptSavesAndEnds) {
  expect_graceful_end(SIGINT, 130);
}

TEST_F(Signals, TerminationSavesAndEnds) {
  expect_graceful_end(SIGTERM, 143);
}

TEST_F(Signals, TheStepAfterwardsIsTraced) {
  testing::Command command(arguments({"--trace=" + (directory_ / "trace.json").string()}),
                           directory_ / "output");
  wait_for_steps(command, 2);
  command.send(SIGINT);
  EXPECT_EQ(command.wait(), 130) << read("output");
  EXPECT_THAT(read("trace.json"), HasSubstr("conv"));
  EXPECT_THAT(read("output"), HasSubstr("nothing was saved: there is no --save"));
}

TEST_F(Signals, ASchedulersWarningSavesAndTrainingGoesOn) {
  const std::string usual = weights_of(arguments({}));
  fs::remove(directory_ / "json");
  testing::Command command(saving(), directory_ / "output");
  wait_for_steps(command, 2);
  command.send(SIGUSR1);
  while (command.running() && saved_step() == 0) {
    ::usleep(1000);
  }
  EXPECT_GE(saved_step(), 2U);
  EXPECT_EQ(command.wait(), 0) << read("output");
  EXPECT_EQ(saved_step(), kSteps);
  EXPECT_EQ(lines().back()["weights_sha256"], usual);
}

// Each rank hears it between other steps; all save and end after the same one.
TEST_F(Signals, RanksEndTogether) {
  if (const std::string why = VDNN_HAS_RANKS ? testing::why_no_mpirun() : "built without MPI"; !why.empty()) {
    GTEST_SKIP() << why;
  }
  testing::set_ranks_environment();
  const std::vector<std::string> ranks = arguments({"--save=" + checkpoint().string(), "--devices=2"});
  testing::Command command(ranks, directory_ / "output");
  wait_for_steps(command, 3);
  command.send(SIGTERM);
  EXPECT_EQ(command.wait(), 143) << read("output");
  const std::uint64_t saved = saved_step();
  EXPECT_GE(saved, 3U);
  EXPECT_LT(saved, kSteps);
  EXPECT_EQ(lines().at(lines().size() - 2)["step"], saved);
  std::vector<std::string> resumed = ranks;
  resumed.push_back("--resume=" + checkpoint().string());
  EXPECT_EQ(weights_of(resumed), weights_of(arguments({"--devices=2"})));
}

// Steps that take so long that the second signal comes first.
TEST_F(Signals, ASecondOneEndsAtOnce) {
  std::vector<std::string> slow = arguments({"--save=" + checkpoint().string()});
  slow[4] = "--batch=512";
  slow[6] = "--memory=2GiB";
  testing::Command command(slow, directory_ / "output");
  wait_for_steps(command, 1);
  command.send(SIGTERM);
  ::usleep(50'000);
  command.send(SIGINT);
  EXPECT_EQ(command.ending_signal(), SIGINT) << read("output");
  EXPECT_FALSE(fs::exists(checkpoint()));
}

}  // namespace
}  // namespace vdnn
