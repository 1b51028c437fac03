// Signals ask `vdnn train` to save or to end. The machine decides at which step a signal arrives, and the
// checks hold for each step. A run that is interrupted and resumed has many more steps than the test waits
// for. A run that is only interrupted never ends by itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/crash/command.h"
#include "tests/mpirun.h"
#include "tests/temporary_directory.h"
#include "vdnn/checkpoint.h"

namespace vdnn::signal_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Signals : public testing::TemporaryDirectory {
 protected:
  static constexpr std::uint64_t kSteps = 30;
  static constexpr std::uint64_t kEndless = 1'000'000'000;

  fs::path checkpoint() const { return directory_ / "checkpoint"; }
  std::uint64_t saved_step() const {
    return fs::exists(checkpoint()) ? Checkpoint(checkpoint()).info().step : 0;
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more,
                                     std::uint64_t steps = kSteps) const {
    std::vector<std::string> result = {VDNN_COMMAND,
                                       "train",
                                       "--model=resnet20",
                                       "--data=synthetic",
                                       "--batch=16",
                                       "--threads=1",
                                       "--memory=64MiB",
                                       "--policy=all",
                                       "--steps=" + std::to_string(steps),
                                       "--json=" + (directory_ / "json").string()};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  std::vector<std::string> saving(std::uint64_t steps = kSteps, std::vector<std::string> more = {}) const {
    more.push_back("--save=" + checkpoint().string());
    return arguments(more, steps);
  }
  std::vector<json> lines(const std::string& file = "json") const {
    std::vector<json> result;
    const std::string text = fs::exists(directory_ / file) ? read(file) : "";
    for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      result.push_back(json::parse(text.substr(begin, end - begin)));
    }
    return result;
  }
  // Waits until `steps` steps are reported.
  void wait_for_steps(testing::Command& command, std::size_t steps) const {
    while (command.running() && lines().size() < steps) {
      ::usleep(1000);
    }
    ASSERT_TRUE(command.running()) << read("output");
  }
  // Waits until there is a checkpoint.
  void wait_for_save(testing::Command& command) const {
    while (command.running() && saved_step() == 0) {
      ::usleep(1000);
    }
    ASSERT_TRUE(command.running()) << read("output");
  }
  // Runs a command that writes its JSON lines to `file`, and returns the weights' hash.
  std::string weights_of(const std::vector<std::string>& all, const std::string& file = "json") const {
    fs::remove(directory_ / file);
    testing::Command command(all, directory_ / "other output");
    EXPECT_EQ(command.wait(), 0) << read("other output");
    const std::vector<json> written = lines(file);
    return written.empty() ? "" : written.back().value("weights_sha256", "");
  }
  // The options of the printed command that continues the run.
  std::string printed_options() const {
    const std::string before = "continue with: vdnn ";
    const std::string output = read("output");
    const std::size_t begin = output.find(before);
    if (begin == std::string::npos) {
      ADD_FAILURE() << output;
      return "";
    }
    const std::size_t first = begin + before.size();
    return output.substr(first, output.find_first_of("\r\n", first) - first);
  }
  // Runs the printed command, as a shell does.
  std::string weights_gone_on_to() const {
    const std::string options = printed_options();
    EXPECT_THAT(options, AllOf(HasSubstr(" --resume " + checkpoint().string()), Not(HasSubstr("--json"))));
    const std::string line = std::string("exec '") + VDNN_COMMAND + "' " + options + " --json '" +
                             (directory_ / "gone on").string() + "'";
    return weights_of({"/bin/sh", "-c", line}, "gone on");
  }
  // Checks the checkpoint at the end of the run.
  void expect_saved_between_the_steps(const std::string& signal) const {
    const std::uint64_t saved = saved_step();
    EXPECT_GE(saved, 3U);
    EXPECT_LT(saved, kSteps);
    ASSERT_GE(lines().size(), 2U);
    EXPECT_EQ(lines().back()["type"], "summary");
    EXPECT_EQ(lines().at(lines().size() - 2)["step"], saved) << "the checkpoint is of the last step";
    EXPECT_THAT(read("output"),
                HasSubstr(signal + " after step " + std::to_string(saved) + ", which is saved"));
  }

  // The signal ends the run with `status` and a saved step. The resumed training ends with the usual weights.
  void expect_graceful_end(int signal, const std::string& name, int status) const {
    {
      // --replan-after exceeds the steps that are left, so the printed command must drop it.
      testing::Command command(saving(kSteps, {"--replan-after=" + std::to_string(kSteps - 1)}),
                               directory_ / "output");
      wait_for_steps(command, 3);
      command.send(signal);
      EXPECT_EQ(command.wait(), status) << read("output");
    }
    expect_saved_between_the_steps(name);
    EXPECT_THAT(printed_options(), AllOf(HasSubstr("train --model resnet20"), Not(HasSubstr("--replan"))));
    EXPECT_EQ(weights_gone_on_to(), weights_of(arguments({})));
  }
};

TEST_F(Signals, InterruptSavesAndEnds) {
  expect_graceful_end(SIGINT, "SIGINT", 130);
}

TEST_F(Signals, TerminationSavesAndEnds) {
  expect_graceful_end(SIGTERM, "SIGTERM", 143);
}

// The last finite checkpoint remains, and the run reports that its final state is not saved.
TEST_F(Signals, InterruptOfATrainingThatGoesOnDivergedReplacesNoCheckpoint) {
  EXPECT_FALSE(weights_of(saving(3)).empty());
  const std::string before = read("checkpoint");
  fs::remove(directory_ / "json");
  testing::Command command(
      saving(kEndless, {"--resume=" + checkpoint().string(), "--lr=1e28", "--allow-nan"}),
      directory_ / "output");
  wait_for_steps(command, 6);
  command.send(SIGINT);
  EXPECT_EQ(command.wait(), 130) << read("output");
  EXPECT_THAT(read("output"), AllOf(HasSubstr("the step was not saved: values are not finite"),
                                    Not(HasSubstr("continue with"))));
  EXPECT_EQ(read("checkpoint"), before);
}

TEST_F(Signals, TheStepAfterwardsIsTraced) {
  testing::Command command(arguments({"--trace=" + (directory_ / "trace.json").string()}, kEndless),
                           directory_ / "output");
  wait_for_steps(command, 2);
  command.send(SIGINT);
  EXPECT_EQ(command.wait(), 130) << read("output");
  EXPECT_THAT(read("trace.json"), HasSubstr("conv"));
  EXPECT_THAT(read("output"), HasSubstr("nothing was saved: no --save was given"));
}

TEST_F(Signals, ASchedulersWarningSavesAndTrainingGoesOn) {
  testing::Command command(saving(kEndless), directory_ / "output");
  wait_for_steps(command, 2);
  command.send(SIGUSR1);
  wait_for_save(command);
  const std::uint64_t saved = saved_step();
  EXPECT_GE(saved, 2U);
  wait_for_steps(command, saved + 2);
  EXPECT_EQ(saved_step(), saved) << "once";
  command.send(SIGTERM);
  EXPECT_EQ(command.wait(), 143) << read("output");
  const std::uint64_t last = saved_step();
  EXPECT_GE(last, saved + 2);
  const std::string weights = lines().back()["weights_sha256"];
  EXPECT_EQ(weights, weights_of(arguments({}, last)));
}

// Regression: the signal ended the run.
TEST_F(Signals, ASchedulersWarningBeforeTheFirstStepIsHeard) {
  testing::Command command(saving(kEndless), directory_ / "output");
  while (command.running() && read("output").empty()) {
    ::usleep(1000);
  }
  command.send(SIGUSR1);
  wait_for_save(command);
  command.send(SIGTERM);
  EXPECT_EQ(command.wait(), 143) << read("output");
}

// `trap '' INT` and a shell's `&` make a program ignore the signal.
TEST_F(Signals, AnIgnoredSignalStaysIgnored) {
  std::vector<std::string> words = {"/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh"};
  std::ranges::copy(saving(), std::back_inserter(words));
  testing::Command command(words, directory_ / "output");
  wait_for_steps(command, 2);
  command.send(SIGINT);
  EXPECT_EQ(command.wait(), 0) << read("output");
  EXPECT_EQ(saved_step(), kSteps);
}

// The ranks receive the signal at different steps, but all save and end after the same step.
TEST_F(Signals, RanksEndTogether) {
  if (const std::string why = VDNN_HAS_RANKS ? testing::why_no_mpirun() : "built without MPI"; !why.empty()) {
    GTEST_SKIP() << why;
  }
  testing::set_ranks_environment();
  testing::Command command(saving(kSteps, {"--devices=2"}), directory_ / "output");
  wait_for_steps(command, 3);
  command.send(SIGTERM);
  EXPECT_EQ(command.wait(), 143) << read("output");
  expect_saved_between_the_steps("SIGTERM");
  EXPECT_THAT(printed_options(), HasSubstr(" --devices 2 "));
  EXPECT_EQ(weights_gone_on_to(), weights_of(arguments({"--devices=2"})));
}

// Both signals arrive during one long step.
TEST_F(Signals, ASecondSignalEndsAtOnce) {
  std::vector<std::string> slow = saving(kEndless);
  slow[4] = "--batch=512";
  slow[6] = "--memory=2GiB";
  testing::Command command(slow, directory_ / "output");
  wait_for_steps(command, 1);
  command.send(SIGSTOP);
  command.send(SIGTERM);
  command.send(SIGINT);
  command.send(SIGCONT);
  EXPECT_THAT(command.ending_signal(), AnyOf(SIGINT, SIGTERM)) << read("output");
  EXPECT_FALSE(fs::exists(checkpoint()));
}

// timeout(1) sends the signal twice. Regression: the second one ended the run, and nothing was saved.
TEST_F(Signals, TheSameSignalTwiceAtOnceIsOneRequest) {
  testing::Command command(saving(kEndless), directory_ / "output");
  wait_for_steps(command, 1);
  command.send(SIGTERM);
  command.send(SIGTERM);
  EXPECT_EQ(command.wait(), 143) << read("output");
  EXPECT_GE(saved_step(), 1U);
}

}  // namespace
}  // namespace vdnn::signal_test
