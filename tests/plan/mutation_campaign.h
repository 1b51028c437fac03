#pragma once
// Breaks schedules in every way of mutation.h and compares the checker with the oracle. The checker must find
// every break that changes the meaning of a schedule. Of the other breaks, it must find exactly those that
// break a rule of drivers. Optionally the campaign also runs the broken schedules. A break that the oracle
// calls harmless must then show nothing. The campaign counts the breaks with a changed meaning that running
// shows.

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

  int changed = 0;        // breaks that change the meaning, by the oracle's verdict
  int found = 0;          // of those, by the checker
  int changed_run = 0;    // of those, run
  int found_running = 0;  // of those, visible when run
  int harmless = 0;
  int harmless_run = 0;  // of those, run in random orders
  int computed = 0;      // of those, run with real computation
  int refused = 0;       // of those, refused by the checker for a rule of drivers (oracle.h)

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
  // Breaks of each kind times instructions of the schedule. Long schedules, on which everything is slower,
  // get fewer breaks. The longest get every kind only if `least` requires it. The campaign draws breaks at
  // random if a kind offers more than this number; otherwise it tries all.
  std::uint64_t work = 1000;
  std::uint64_t least = 0;                  // breaks of a kind, for a schedule of any length
  std::optional<MutationKind> only_kind{};  // none: all kinds
  int harmless_orders = 3;
  int changed_orders = 1;
  int most_computed_of_a_kind = 1;
};

// Fails the calling test for each missed break, for each harmless break that the checker refuses without a
// rule of drivers, and for each harmless break that shows when run. The message contains the line that
// reproduces the break.
Tallies run_campaign(const Subject& subject, const CampaignOptions& options, const Trials& trials = {});

}  // namespace vdnn::testing
