// `vdnn train`, watched while it runs. Each run has more steps than its test waits for, and is ended by a
// signal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/chromium.h"
#include "tests/cli/http_request.h"
#include "tests/crash/command.h"
#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn::live_training_test {
namespace {

using ::testing::AllOf;
using testing::body_of;
using testing::Command;
using ::testing::HasSubstr;
using testing::request;
using testing::status_line;

class LiveTrainingTest : public testing::TemporaryDirectory {
 protected:
  static std::vector<std::string> arguments(const std::vector<std::string>& more) {
    std::vector<std::string> all{VDNN_COMMAND,        "train",     "--model=lenet", "--data=synthetic",
                                 "--device=cpu",      "--batch=4", "--threads=1",   "--memory=64MiB",
                                 "--steps=100000000", "--lr=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string output() const { return (directory_ / "output").string(); }
  // Waits until the command prints its port.
  std::uint16_t port(Command& command) const {
    const std::regex line("live: http://127\\.0\\.0\\.1:([0-9]+)/ ");
    std::smatch match;
    std::string text;
    while (command.running()) {
      text = read("output");
      if (std::regex_search(text, match, line)) {
        return static_cast<std::uint16_t>(std::stoi(match[1]));
      }
      ::usleep(1000);
    }
    ADD_FAILURE() << "ended: " << read("output");
    return 0;
  }
  // The value of a metric in /metrics; negative if there is none.
  static double metric(std::uint16_t port, const std::string& name) {
    const std::string text = body_of(request(port, "GET", "/metrics"));
    const std::size_t begin = text.find("\n" + name + " ");
    return begin == std::string::npos ? -1 : std::stod(text.substr(begin + name.size() + 2));
  }
  // The line of `step` in the file `json`.
  nlohmann::json line_of_step(std::uint64_t step) const {
    std::istringstream lines(read("json"));
    for (std::string text; std::getline(lines, text);) {
      nlohmann::json line = nlohmann::json::parse(text);
      if (line["type"] == "step" && line["step"] == step) {
        return line;
      }
    }
    ADD_FAILURE() << "no line of step " << step;
    return {};
  }
  // Waits until more than `step` steps are done, and returns how many are.
  double wait_for_step(Command& command, std::uint16_t port, double step) const {
    double now = 0;
    while (command.running() && (now = metric(port, "vdnn_step")) <= step) {
      ::usleep(1000);
    }
    EXPECT_TRUE(command.running()) << read("output");
    return now;
  }
};

TEST_F(LiveTrainingTest, IsSeenAsItGoesOn) {
  Command command(arguments({"--metrics-port=0", "--json=" + (directory_ / "json").string()}), output());
  const std::uint16_t port = this->port(command);
  ASSERT_NE(port, 0);
  const double first = wait_for_step(command, port, 2);
  EXPECT_GT(wait_for_step(command, port, first), first);
  const std::string text = body_of(request(port, "GET", "/metrics"));
  EXPECT_THAT(text, AllOf(HasSubstr("{model=\"lenet\",device=\"cpu\",policy=\"none\"} 1\n"),
                          HasSubstr("\nvdnn_planned_steps 100000000\n"), HasSubstr("\nvdnn_ranks 1\n"),
                          HasSubstr("\nvdnn_memory_budget_bytes 67108864\n")));
  EXPECT_GT(metric(port, "vdnn_loss"), 0);
  EXPECT_GT(metric(port, "vdnn_images_per_second"), 0);
  EXPECT_GE(metric(port, "vdnn_stall_seconds_total"), 0);
  EXPECT_GT(metric(port, "vdnn_memory_bytes"), 0);
  EXPECT_GE(metric(port, "vdnn_memory_peak_bytes"), metric(port, "vdnn_memory_bytes"));
  const double images = metric(port, "vdnn_images_total");
  EXPECT_EQ(images, 4 * std::floor(images / 4));
  EXPECT_EQ(status_line(request(port, "POST", "/metrics", "x")), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_THAT(status_line(request(port, "GET", "/")), HasSubstr(" 200 "));
  const auto scraped = nlohmann::json::parse(body_of(request(port, "GET", "/metrics.json")));
  command.send(SIGINT);
  EXPECT_EQ(command.wait(), 128 + SIGINT) << read("output");
  const nlohmann::json line = line_of_step(scraped["step"]);
  for (const std::string key : {"loss", "images_per_second", "stall_fraction"}) {
    EXPECT_EQ(scraped[key], line[key]) << key;
  }
  EXPECT_EQ(request(port, "GET", "/metrics"), "");
}

TEST_F(LiveTrainingTest, APortThatIsTakenIsFoundBeforeTraining) {
  Command command(arguments({"--metrics-port=0"}), output());
  const std::uint16_t port = this->port(command);
  ASSERT_NE(port, 0);
  const testing::Outcome second = testing::run_process(
      std::string(VDNN_COMMAND) + " train --model lenet --data synthetic --steps 100000000 --metrics-port " +
      std::to_string(port));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.text,
              HasSubstr("--metrics-port " + std::to_string(port) + " on 127.0.0.1: another program listens"));
  EXPECT_THAT(second.text, ::testing::Not(HasSubstr("trains for")));
}

TEST_F(LiveTrainingTest, TheCommandThatGoesOnShowsItAgain) {
  Command command(arguments({"--metrics-port=0", "--save=" + (directory_ / "saved").string()}), output());
  const std::uint16_t port = this->port(command);
  ASSERT_NE(port, 0);
  wait_for_step(command, port, 1);
  command.send(SIGTERM);
  EXPECT_EQ(command.wait(), 128 + SIGTERM);
  EXPECT_THAT(read("output"), ::testing::ContainsRegex("continue with: vdnn train .* --metrics-port 0"));
}

// The server has no metrics while the run is planned. No metric shows 0 before the checkpoint is read.
TEST_F(LiveTrainingTest, StartsAtTheStepOfItsCheckpoint) {
  const std::string saved = (directory_ / "saved").string();
  const testing::Outcome first = testing::run_process(
      std::string(VDNN_COMMAND) +
      " train --model lenet --data synthetic --device cpu --batch 4 --threads 1 --lr 0 --steps 3 --save " +
      saved);
  ASSERT_EQ(first.status, 0) << first.text;
  Command command(arguments({"--metrics-port=0", "--resume=" + saved}), output());
  const std::uint16_t port = this->port(command);
  ASSERT_NE(port, 0);
  std::string text;
  while (command.running() && text.empty()) {
    text = body_of(request(port, "GET", "/metrics"));
  }
  const std::size_t begin = text.find("\nvdnn_step ");
  ASSERT_NE(begin, std::string::npos) << text << read("output");
  EXPECT_GE(std::stod(text.substr(begin + 11)), 3);
  EXPECT_THAT(text, AllOf(HasSubstr("\nvdnn_planned_steps 100000000\n"), HasSubstr("\nvdnn_epoch 1\n")));
}

TEST_F(LiveTrainingTest, ThePageDrawsItInABrowser) {
  const std::string browser = testing::chromium();
  if (browser.empty()) {
    ASSERT_FALSE(testing::chromium_is_required()) << testing::kNoChromium;
    GTEST_SKIP() << testing::kNoChromium;
  }
  Command command(arguments({"--metrics-port=0"}), output());
  const std::uint16_t port = this->port(command);
  ASSERT_NE(port, 0);
  const double step = wait_for_step(command, port, 5);
  const testing::Outcome outcome = testing::open_page(
      browser, directory_, "http://127.0.0.1:" + std::to_string(port) + "/", "--virtual-time-budget=4000");
  EXPECT_TRUE(command.running()) << read("output");
  EXPECT_EQ(outcome.status, 0) << read("log");
  EXPECT_THAT(read("log"), ::testing::Not(HasSubstr("CONSOLE")));  // an error, or a violation of its CSP
  std::smatch drawn;
  ASSERT_TRUE(std::regex_search(outcome.text, drawn, std::regex("data-step=\"([0-9]+)\""))) << outcome.text;
  EXPECT_GT(std::stod(drawn[1]), step);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("lenet on cpu"), HasSubstr("policy none"),
                                  ::testing::ContainsRegex("[0-9,]+ of 100000000"), HasSubstr(">training<"),
                                  ::testing::ContainsRegex("<path d=\"M0.00 [0-9.]+L")));
}

}  // namespace
}  // namespace vdnn::live_training_test
