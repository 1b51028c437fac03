// Tests the checker by breaking schedules. The checker must find every break that changes the meaning of a
// schedule. The oracle (oracle.h), which shares no code with the checker, decides which breaks do. The
// schedules here are for tapes of a catalog made for tests; tests/train/zoo_mutation_test.cpp breaks
// schedules for the zoo.

#include "tests/plan/mutation.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "tests/extent.h"
#include "tests/plan/mutation_campaign.h"
#include "tests/plan/oracle.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {
namespace {

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

// The second of two choices depends on the first. All their combinations occur, each of them once.
TEST(Mutation, AllChoicesAreEveryCombinationOnce) {
  std::multiset<std::pair<std::uint32_t, std::uint32_t>> seen;
  Choices choices = Choices::all();
  do {
    const std::uint32_t first = choices.below(3);
    seen.emplace(first, choices.between(first, 3, 0));
  } while (choices.next());
  const std::multiset<std::pair<std::uint32_t, std::uint32_t>> expected{
      {0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}};
  EXPECT_EQ(seen, expected);
}

TEST(Mutation, TheCheckerFindsAllThatChangeMeaning) {
  const std::uint64_t work = extent({.usual = 400, .under_sanitizers = 200, .in_long_run = 1200});
  Tallies total{};
  for (const Subject& subject : all_subjects()) {
    add(total, run_campaign(subject, {.work = work}));
  }
  print(std::cout, "four networks of a fake catalog", total);
  for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
    // Without breaks of each kind, this test would pass without testing anything.
    EXPECT_GT(total.at(kind).breaks(), 10) << to_string(static_cast<MutationKind>(kind));
  }
}

}  // namespace
}  // namespace vdnn::testing
