#pragma once
// Breaks schedules in every way of mutation.h and compares the checker with the oracle. The checker must find
// every break that changes the meaning of a schedule. Of the other breaks, it must find exactly those that
// break a rule of drivers. Optionally the campaign also runs the broken schedules. A run must show no error
// for a break that the oracle calls harmless. Of the breaks that change the meaning, the campaign counts
// those for which a run shows an error.

#include <array>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "tests/plan/mutation.h"
#include "tests/plan/tapes.h"

namespace vdnn::testing {

// The counts for one kind of break.
struct Tally {
  int breaks() const { return changed + harmless; }

  // Breaks that change the meaning, by the oracle's verdict: all of them, those that the checker finds, those
  // that were run, and those for which the run showed an error.
  int changed = 0;
  int found = 0;
  int changed_run = 0;
  int found_running = 0;
  // Breaks that do not change the meaning: all of them, those that were run in random orders, those that were
  // run with real computation, and those that the checker refuses for a rule of drivers (oracle.h).
  int harmless = 0;
  int harmless_run = 0;
  int computed = 0;
  int refused = 0;

  Tally& operator+=(const Tally& other);
};
using Tallies = std::array<Tally, kMutationKinds>;

void add(Tallies& to, const Tallies& more);
Tally sum(const Tallies& tallies);

// Prints one line per kind and a total.
void print(std::ostream& out, const std::string& title, const Tallies& tallies);

// Functions that run a well-formed schedule (oracle.h) and return the error, or an empty string.
struct Trials {
  // Simulates `orders` random permitted orders, starting at this seed. May be empty.
  std::function<std::string(const Schedule&, std::uint64_t seed, int orders)> simulate;
  // Runs with real computation. The campaign passes only schedules that the checker accepts. May be empty.
  std::function<std::string(const Schedule&)> compute;
};

struct CampaignOptions {
  // The number of breaks of each kind is `work` divided by the number of instructions. So a long schedule, on
  // which each break costs more, gets fewer breaks. The longest schedules get breaks of every kind only if
  // `least` requires it. If a kind offers more breaks than this number, the campaign draws some at random;
  // otherwise it tries all.
  std::uint64_t work = 1000;
  std::uint64_t least = 0;                  // breaks of a kind, for a schedule of any length
  std::optional<MutationKind> only_kind{};  // none: all kinds
  int harmless_orders = 3;
  int changed_orders = 1;
  int most_computed_of_a_kind = 1;
};

// Fails the calling test for each missed break. Also fails it for each harmless break that the checker
// refuses without a rule of drivers, or whose run shows an error. The message contains the line that
// reproduces the break.
Tallies run_campaign(const Subject& subject, const CampaignOptions& options, const Trials& trials = {});

}  // namespace vdnn::testing
