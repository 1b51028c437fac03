// Runs the fuzz targets on known inputs: seeds, damaged seeds, and the corpus in the tree. In the corpus,
// findings have descriptive names, and fuzz/corpus/README.md records what failed.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <set>

#include "fuzz/scratch.h"
#include "fuzz/target.h"
#include "src/base/random.h"

namespace vdnn::fuzz {

// GoogleTest calls this function to print a target.
void PrintTo(const Target& target, std::ostream* out) {
  *out << target.name;
}

namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = VDNN_FUZZ_CORPUS;

class FuzzTarget : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzTarget, AcceptsItsSeeds) {
  const std::vector<Seed> seeds = GetParam().seeds();
  EXPECT_FALSE(seeds.empty());
  for (const Seed& seed : seeds) {
    EXPECT_TRUE(GetParam().run(seed.bytes)) << seed.name;
  }
}

// libFuzzer's names for inputs that reach new code are twelve hexadecimal digits. Findings have other names.
bool is_finding(const std::string& name) {
  return name.size() != 12 || name.find_first_not_of("0123456789abcdef") != std::string::npos;
}

// Findings must be refused: if one is accepted, its defect is back.
TEST_P(FuzzTarget, KeepsItsContractForTheCorpusAndRefusesFindings) {
  std::size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kCorpus / GetParam().name)) {
    bool accepted = false;
    EXPECT_NO_THROW(accepted = GetParam().run(read_bytes(entry.path()))) << entry.path();
    EXPECT_FALSE(accepted && is_finding(entry.path().filename().string())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0U);
}

// Changes, removes and repeats bytes as libFuzzer does, but without coverage feedback.
Bytes damaged(Bytes bytes, std::uint64_t seed) {
  SplitMix64 random(seed);
  for (std::uint64_t change = 0; change <= random.below(3) && !bytes.empty(); ++change) {
    const auto at = static_cast<std::ptrdiff_t>(random.below(bytes.size()));
    const auto end = static_cast<std::ptrdiff_t>(
        std::min<std::uint64_t>(bytes.size(), static_cast<std::uint64_t>(at) + 1 + random.below(16)));
    const Bytes piece(bytes.begin() + at, bytes.begin() + end);
    switch (random.below(3)) {
      case 0:
        bytes[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(random.next());
        break;
      case 1:
        bytes.erase(bytes.begin() + at, bytes.begin() + end);
        break;
      default:
        bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
    }
  }
  return bytes;
}

TEST_P(FuzzTarget, KeepsItsContractForDamagedSeeds) {
  constexpr std::uint64_t kTries = 50;
  for (const Seed& seed : GetParam().seeds()) {
    for (std::uint64_t number = 0; number < kTries; ++number) {
      EXPECT_NO_THROW(GetParam().run(damaged(seed.bytes, number)))
          << "reproduce with: target " << GetParam().name << ", seed " << seed.name << ", damage " << number;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, FuzzTarget, ::testing::ValuesIn(targets()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(FuzzCorpus, BelongsToTargets) {
  std::set<std::string> names{"README.md"};
  for (const Target& target : targets()) {
    EXPECT_TRUE(names.emplace(target.name).second) << target.name;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(kCorpus)) {
    EXPECT_TRUE(names.contains(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace vdnn::fuzz
