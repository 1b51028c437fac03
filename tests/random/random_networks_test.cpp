// Runs the trial (network_trial.h) of hundreds of random networks, in shards that run side by side. A failure
// prints the command that repeats the trial of one network:
//
//   random_networks_test --seed=17 [--policy=all] [--budget=1048576]

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/extent.h"
#include "tests/random/network_trial.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

const std::uint64_t kNetworks =
    extent({.usual = kNetworksOfTheSuite, .under_sanitizers = 8, .in_long_run = 5000});
constexpr std::uint64_t kShards = 8;

std::string reproducer(std::uint64_t seed) {
  return "reproduce with: " + std::filesystem::read_symlink("/proc/self/exe").string() +
         " --seed=" + std::to_string(seed);
}

std::string in_words(const RandomNetwork& random, const Findings& findings) {
  std::string text = describe(random);
  for (const std::string& finding : findings) {
    text += "\n" + finding;
  }
  return text + "\n" + reproducer(random.seed);
}

class RandomNetworks : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomNetworks, HoldWhatIsPromised) {
  std::map<std::string, int> counts;
  for (std::uint64_t seed = GetParam(); seed < kNetworks; seed += kShards) {
    std::cout << reproducer(seed) << std::endl;  // flushed, so that a crash follows its own seed
    const RandomNetwork random = make_random_network(seed);
    const Trial trial = judge_network(random);
    EXPECT_TRUE(trial.findings.empty()) << in_words(random, trial.findings);
    for (const auto& [what, count] : trial.counts) {
      counts[what] += count;
    }
  }
  for (const auto& [what, count] : counts) {
    std::cout << what << ": " << count << "\n";
  }
  // The counts must not be zero: otherwise a shard would pass even if every evaluation were refused or had a
  // different batch.
  std::vector<std::string> wanted{"training compared", "evaluation", "evaluation compared"};
  if (kNetworks / kShards >= 20) {  // auto may choose the same policy for a few networks
    wanted.insert(wanted.end(), {"auto settles on none", "auto settles on optimal"});
  }
  for (const std::string& what : wanted) {
    EXPECT_GT(counts[what], 0) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomNetworks, ::testing::Range<std::uint64_t>(0, kShards));

// --- one network by hand -----------------------------------------------------------------------------------

int try_one(std::uint64_t seed, const TrialOptions& options) {
  const RandomNetwork random = make_random_network(seed);
  std::cout << describe(random) << std::endl;  // flushed, since the trial may crash
  const Findings findings = judge_network(random, options).findings;
  for (const std::string& finding : findings) {
    std::cout << finding << "\n";
  }
  std::cout << (findings.empty() ? "nothing is wrong" : "FAILED") << "\n";
  return findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace vdnn::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  try {
    const vdnn::testing::TrialCommand command = vdnn::testing::parse_trial(arguments);
    return command.seed ? vdnn::testing::try_one(*command.seed, command.options) : RUN_ALL_TESTS();
  } catch (const vdnn::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
