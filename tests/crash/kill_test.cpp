// Kills `vdnn train` with SIGKILL at moments drawn by seed over its start, steps and saves. Then checks the
// checkpoint from which the command resumes, and the final weights. Each training run is killed twice, so
// that a resumed run is killed, too. The policy differs each time.
//
// A moment is a point of progress (a number of reported steps, or the beginning of a save) plus a random
// delay. The delays spread the kills over the time between two such points. The exact moment of a kill
// depends on the machine, but the checks hold at each moment.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/crash/command.h"
#include "tests/extent.h"
#include "tests/temporary_directory.h"
#include "vdnn/checkpoint.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::uint64_t kTrainingSteps = 10;
constexpr int kKillsATraining = 2;
constexpr std::array<const char*, 4> kPolicies = {"none", "all", "conv", "baseline"};

enum class Phase { kStarting, kSteps, kSaves };

struct Moment {
  Phase phase = Phase::kStarting;
  std::uint64_t steps = 0;  // that this process has reported
  double delay = 0;         // fraction of the time to start, or of a step with its save
};

class Kill : public testing::TemporaryDirectory {
 protected:
  fs::path checkpoint() const { return directory_ / "checkpoint"; }
  std::uint64_t saved_step() const {
    return fs::exists(checkpoint()) ? Checkpoint(checkpoint()).info().step : 0;
  }
  bool save_has_begun() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
      if (entry.path().filename().string().find(".vdnn-tmp") != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  std::vector<std::string> arguments(const char* policy) const {
    std::vector<std::string> result = {VDNN_COMMAND,
                                       "train",
                                       "--model=lenet",
                                       "--data=synthetic",
                                       "--batch=4",
                                       "--threads=1",
                                       "--memory=64MiB",
                                       "--steps=" + std::to_string(kTrainingSteps),
                                       "--save-every=1",
                                       "--save=" + checkpoint().string(),
                                       "--json=" + (directory_ / "json").string(),
                                       "--policy=" + std::string(policy)};
    if (fs::exists(checkpoint())) {
      result.push_back("--resume=" + checkpoint().string());
    }
    return result;
  }
  const char* next_policy() { return kPolicies[policy_++ % kPolicies.size()]; }

  // The complete lines of JSON.
  std::vector<json> reports() const {
    std::vector<json> result;
    std::string text = read("json");
    text.resize(text.rfind('\n') + 1);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      result.push_back(json::parse(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return result;
  }

  // Trains to the end, from the checkpoint if there is one, and returns the weights' hash.
  std::string finish() {
    fs::remove(directory_ / "json");
    testing::Command command(arguments(next_policy()), directory_ / "output");
    const Clock::time_point begin = Clock::now();
    while (command.running() && reports().empty()) {
      ::usleep(kPollMicroseconds);
    }
    const Clock::time_point started = Clock::now();
    EXPECT_EQ(command.wait(), 0) << read("output");
    const Clock::time_point end = Clock::now();
    EXPECT_FALSE(save_has_begun()) << "a temporary file is left behind";
    const std::vector<json> lines = reports();
    if (lines.empty()) {
      return "";
    }
    start_seconds_ = std::chrono::duration<double>(started - begin).count();
    step_seconds_ = std::chrono::duration<double>(end - started).count() / static_cast<double>(lines.size());
    return lines.back()["weights_sha256"];
  }

  Moment draw(std::uint64_t steps_left) {
    const auto phase = static_cast<Phase>(std::uniform_int_distribution(0, 2)(random_));
    // A process with one step left is killed before or during that step.
    const std::uint64_t most = phase == Phase::kStarting ? 0 : (steps_left - 1) / 2;
    return {.phase = phase,
            .steps = std::uniform_int_distribution<std::uint64_t>(0, most)(random_),
            .delay = std::uniform_real_distribution(0.0, 1.0)(random_)};
  }

  bool is_reached(const Moment& moment) const {
    return reports().size() >= moment.steps &&
           (moment.phase != Phase::kSaves || (!reports().empty() && save_has_begun()));
  }

  // Trains until `moment`, and returns which phase the kill has hit, judged by the remaining files.
  std::string kill_at(const Moment& moment) {
    fs::remove(directory_ / "json");
    testing::Command command(arguments(next_policy()), directory_ / "output");
    while (command.running() && !is_reached(moment)) {
      ::usleep(kPollMicroseconds);
    }
    const double scale = moment.phase == Phase::kStarting ? start_seconds_ : step_seconds_;
    ::usleep(static_cast<useconds_t>(1e6 * scale * moment.delay));
    if (!command.kill()) {
      EXPECT_EQ(command.wait(), 0) << read("output");
      return kNothing;
    }
    ++kills_;
    if (reports().empty()) {
      return kStarting;
    }
    return save_has_begun() ? kSaves : kSteps;
  }

  // Each step is saved before the next one is reported.
  void expect_nothing_saved_was_lost(std::uint64_t before) const {
    const std::vector<json> lines = reports();
    const std::uint64_t saved = saved_step();
    EXPECT_GE(saved, before);
    if (!lines.empty() && lines.back()["type"] == "step") {
      const std::uint64_t reported = lines.back()["step"];
      EXPECT_GE(saved + 1, reported);
      EXPECT_LE(saved, reported);
    }
  }

  // Kills one training run repeatedly.
  void kill_training() {
    fs::remove(checkpoint());
    for (int kill = 0; kill < kKillsATraining && saved_step() < kTrainingSteps; ++kill) {
      const std::uint64_t before = saved_step();
      ++struck_[kill_at(draw(kTrainingSteps - before))];
      expect_nothing_saved_was_lost(before);
    }
  }

  static constexpr useconds_t kPollMicroseconds = 100;
  static constexpr const char* kStarting = "starting";
  static constexpr const char* kSteps = "steps";
  static constexpr const char* kSaves = "saves";
  static constexpr const char* kNothing = "nothing: the kill came too late";
  std::mt19937_64 random_;
  std::size_t policy_ = 0;
  double start_seconds_ = 0;  // until the first report
  double step_seconds_ = 0;
  std::map<std::string, int> struck_;
  int kills_ = 0;  // that hit a running process
};

TEST_F(Kill, AtRandomMomentsEndsWithTheSameWeights) {
  const std::string weights = finish();
  ASSERT_FALSE(weights.empty());
  const std::string last_checkpoint = read("checkpoint");
  // A kill may come too late, or the earlier kill may already have hit the last save. If that happens to most
  // kills, the test is broken.
  const int kills = static_cast<int>(testing::extent({.usual = 20, .in_long_run = 100}));
  const int most_trainings = 2 * kills;
  for (int training = 0; kills_ < kills && !HasFailure(); ++training) {
    ASSERT_LT(training, most_trainings);
    SCOPED_TRACE("seed " + std::to_string(training));
    random_.seed(static_cast<std::uint64_t>(training));
    kill_training();
    if (saved_step() < kTrainingSteps) {
      EXPECT_EQ(finish(), weights);
    }
    EXPECT_TRUE(read("checkpoint") == last_checkpoint);
  }
  std::printf("phases that kills have hit:");
  for (const auto& [what, count] : struck_) {
    std::printf(" %s: %d;", what.c_str(), count);
  }
  std::printf("\n");
  EXPECT_GT(struck_[kSteps], 0);
  EXPECT_GT(struck_[kSaves], 0);
}

}  // namespace
}  // namespace vdnn
