// The checker is tested by breaking schedules: every break that changes what a schedule means, by the verdict
// of an oracle that shares no code with it, must be found.

#include "plan/mutation.h"

#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <sstream>

#include "plan/oracle.h"
#include "plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {
namespace {

constexpr std::uint64_t kMutationsPerSchedule = 330;

std::string joined(const std::vector<std::string>& lines) {
  std::string result;
  for (const std::string& line : lines) {
    result += "\n  " + line;
  }
  return result;
}

TEST(Mutation, UnbrokenSchedulesPass) {
  for (const Subject& subject : all_subjects()) {
    EXPECT_EQ(joined(check_schedule(*subject.tape, subject.schedule)), "") << subject.name;
    EXPECT_EQ(Oracle(*subject.tape, subject.schedule).objection(subject.schedule, Exploration::kEverything),
              "")
        << subject.name;
  }
}

struct Tally {
  int mutations = 0;
  int changed = 0;  // meaning
  int found = 0;    // of those
  int harmless = 0;
  int refused = 0;  // of those
};

std::string to_string(const Tally& tally) {
  std::ostringstream text;
  text << "mutations: " << tally.mutations << "; meaning changed: " << tally.changed
       << ", found by the checker: " << tally.found << " of " << tally.changed
       << "; harmless: " << tally.harmless << ", of which the checker objects to " << tally.refused;
  return text.str();
}

Tally sum(const std::array<Tally, kMutationKinds>& tallies) {
  Tally total;
  for (const Tally& tally : tallies) {
    total.mutations += tally.mutations;
    total.changed += tally.changed;
    total.found += tally.found;
    total.harmless += tally.harmless;
    total.refused += tally.refused;
  }
  return total;
}

class MutationCampaign {
 public:
  void run(const Subject& subject) {
    const Oracle oracle(*subject.tape, subject.schedule);
    for (std::uint64_t seed = 0; seed < kMutationsPerSchedule; ++seed) {
      std::mt19937_64 random(seed);
      auto kind = static_cast<MutationKind>(seed % kMutationKinds);
      std::optional<Mutant> mutant = mutate(*subject.tape, subject.schedule, kind, random);
      while (!mutant) {  // this schedule has no prefetches, say
        kind = static_cast<MutationKind>(random() % kMutationKinds);
        mutant = mutate(*subject.tape, subject.schedule, kind, random);
      }
      judge(subject, oracle, *mutant, kind, seed);
    }
  }

  const std::array<Tally, kMutationKinds>& tallies() const { return tallies_; }

 private:
  void judge(const Subject& subject, const Oracle& oracle, const Mutant& mutant, MutationKind kind,
             std::uint64_t seed) {
    std::string objection = oracle.objection(mutant.schedule, Exploration::kConflicts, seed);
    if (objection.empty()) {
      objection = oracle.objection(mutant.schedule, Exploration::kEverything, seed);
    }
    const std::vector<std::string> findings = check_schedule(*subject.tape, mutant.schedule);
    Tally& tally = tallies_.at(static_cast<std::size_t>(kind));
    ++tally.mutations;
    const std::string reproducer =
        subject.name + ", seed " + std::to_string(seed) + ", " + to_string(kind) + ": " + mutant.what;
    if (!objection.empty()) {
      ++tally.changed;
      tally.found += findings.empty() ? 0 : 1;
      EXPECT_FALSE(findings.empty()) << reproducer << "; the oracle: " << objection;
      return;
    }
    ++tally.harmless;
    if (!findings.empty()) {
      ++tally.refused;
      std::cout << "harmless, but refused: " << reproducer << "; the checker: " << findings.front() << '\n';
    }
  }

  std::array<Tally, kMutationKinds> tallies_{};
};

TEST(Mutation, TheCheckerFindsAllThatChangeMeaning) {
  MutationCampaign campaign;
  for (const Subject& subject : all_subjects()) {
    campaign.run(subject);
  }
  for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
    const Tally& tally = campaign.tallies().at(kind);
    const std::string name = to_string(static_cast<MutationKind>(kind));
    std::cout << name << ": " << to_string(tally) << '\n';
    // Otherwise this test would pass without testing anything.
    EXPECT_GT(tally.changed, 50) << name;
  }
  std::cout << "in total: " << to_string(sum(campaign.tallies())) << '\n';
}

}  // namespace
}  // namespace vdnn::testing
