#pragma once
// Breaks schedules in every way of mutation.h and compares the checker with the oracle. The checker must find
// every break that changes the meaning of a schedule, and of the others exactly those that break a rule of
// drivers. Optionally the broken schedules are run as well: breaks that the oracle calls harmless must show
// nothing, and breaks that change the meaning are counted if running shows them.

#include <array>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "tests/plan/mutation.h"
#include "tests/plan/tapes.h"

namespace vdnn::testing {

// Of one kind of break.
struct Tally {
  int breaks() const { return changed + harmless; }

  int changed = 0;        // meaning, by the oracle's verdict
  int found = 0;          // of those, by the checker
  int changed_run = 0;    // of those, run
  int found_running = 0;  // of those, shown by running them
  int harmless = 0;
  int harmless_run = 0;  // of those, run in random orders
  int computed = 0;      // of those, run with the layers' mathematics
  int refused = 0;       // of those, by the checker: they break a rule of drivers (oracle.h)

  Tally& operator+=(const Tally& other);
};
using Tallies = std::array<Tally, kMutationKinds>;

void add(Tallies& to, const Tallies& more);
Tally sum(const Tallies& tallies);

// A line a kind, and a line for all.
void print(std::ostream& out, const std::string& title, const Tallies& tallies);

// Run a well-formed schedule (oracle.h) and return the error, or an empty string.
struct Trials {
  // In random permitted orders, as many as are asked for, from this seed on. May be empty.
  std::function<std::string(const Schedule&, std::uint64_t seed, int orders)> simulate;
  // For real; given only schedules that the checker passes. May be empty.
  std::function<std::string(const Schedule&)> compute;
};

struct CampaignOptions {
  // Breaks of each kind times instructions of the schedule: long schedules, on which everything is slower,
  // get fewer breaks, and the longest do not get every kind unless `least` requires it. If a kind offers no
  // more breaks than that, all are tried; otherwise they are drawn.
  std::uint64_t work = 1000;
  std::uint64_t least = 0;                  // breaks of a kind, however long the schedule
  std::optional<MutationKind> only_kind{};  // none: all kinds
  int harmless_orders = 3;
  int changed_orders = 1;
  int most_computed_of_a_kind = 1;
};

// Fails the calling test for each missed break, for each harmless break that the checker refuses without a
// rule of drivers, and for each that is not harmless when it runs, with the line that reproduces it.
Tallies run_campaign(const Subject& subject, const CampaignOptions& options, const Trials& trials = {});

}  // namespace vdnn::testing
