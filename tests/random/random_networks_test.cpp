// Hundreds of random networks through everything (network_trial.h), in shards that run side by side; and one
// of them by hand, as a failure prints it:
//
//   random_networks_test --seed=17 [--policy=all] [--budget=1048576]

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "tests/exec/executor_rig.h"
#include "tests/random/network_trial.h"

namespace vdnn::testing {
namespace {

// The program of the label `long` is compiled with more, those of sanitizers with less.
constexpr std::uint64_t kNetworks = VDNN_RANDOM_NETWORKS;
constexpr std::uint64_t kShards = 8;

std::string in_words(const RandomNetwork& random, const Findings& findings) {
  std::string text = describe(random);
  for (const std::string& finding : findings) {
    text += "\n" + finding;
  }
  return text + "\nreproduce with: " + std::filesystem::read_symlink("/proc/self/exe").string() +
         " --seed=" + std::to_string(random.seed);
}

class RandomNetworks : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomNetworks, HoldWhatIsPromised) {
  for (std::uint64_t seed = GetParam(); seed < kNetworks; seed += kShards) {
    std::cout << "seed " << seed << std::endl;  // flushed: what crashes is the last that was printed
    const RandomNetwork random = make_random_network(seed);
    const Findings findings = judge_network(random);
    EXPECT_TRUE(findings.empty()) << in_words(random, findings);
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, RandomNetworks, ::testing::Range<std::uint64_t>(0, kShards));

// --- one network by hand -----------------------------------------------------------------------------------

std::optional<std::string_view> value_of(std::string_view flag, std::span<char*> arguments) {
  for (const std::string_view argument : arguments) {
    if (argument.starts_with(flag)) {
      return argument.substr(flag.size());
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_of(std::string_view flag, std::span<char*> arguments) {
  const std::optional<std::string_view> text = value_of(flag, arguments);
  std::uint64_t number = 0;
  if (text && std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) {
    throw InvalidArgument(std::string(flag) + std::string(*text) + ": not a number");
  }
  return text ? std::optional(number) : std::nullopt;
}

std::optional<Policy> policy_of(std::span<char*> arguments) {
  const std::optional<std::string_view> name = value_of("--policy=", arguments);
  for (const Policy policy : kPolicies) {
    if (name == to_string(policy)) {
      return policy;
    }
  }
  if (name) {
    throw InvalidArgument("no policy '" + std::string(*name) + "'");
  }
  return std::nullopt;
}

int try_one(std::uint64_t seed, std::span<char*> arguments) {
  const RandomNetwork random = make_random_network(seed);
  const Findings findings = judge_network(
      random, {.policy = policy_of(arguments), .budget_bytes = number_of("--budget=", arguments)});
  std::cout << in_words(random, findings) << "\n"
            << (findings.empty() ? "nothing is wrong" : "FAILED") << "\n";
  return findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace vdnn::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  try {
    const auto seed = vdnn::testing::number_of("--seed=", arguments);
    return seed ? vdnn::testing::try_one(*seed, arguments) : RUN_ALL_TESTS();
  } catch (const vdnn::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
