#pragma once
// Compares plans of a tape by forecasts of their steps. The winner is the fastest plan that fits. Among
// equally fast plans, it is the plan with the lowest peak, and among those the plan whose addresses are
// closest together. If no plan fits, the winner is the plan with the lowest peak.

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "vdnn/forecast.h"
#include "vdnn/optimal_plan.h"

namespace vdnn::optimal {

// The seconds of a plan's step, then its peak in bytes. The better plan has the smaller rank.
using Rank = std::pair<double, std::uint64_t>;
constexpr Rank kNoRank(std::numeric_limits<double>::infinity(), 0);  // the rank if no plan fits

// The best of several plans. There is no plan if none fits.
struct Best {
  Rank rank = kNoRank;
  std::optional<PlannedSchedule> plan;
};

// A plan that may become faster.
struct Leader {
  std::size_t problem = 0;   // the number of the problem for which the plan was found
  double seconds = 0;        // forecast seconds of a step
  double least_seconds = 0;  // every plan derived from this one takes at least this long
  PlannedSchedule schedule;

  // The seconds of a step if half of the possible gain is realised.
  double expected_seconds() const { return (seconds + least_seconds) / 2; }
};

class Contest {
 public:
  Contest(const Tape& tape, const Budgets& budgets, const Forecaster& forecaster)
      : tape_(tape), budgets_(budgets), forecaster_(forecaster) {}

  // Plans entered after this call count as plans of problem number `problem`, from 0. Must be called before
  // the first plan is entered.
  void begin_round(std::size_t problem);
  // The best rank among the plans that fit and were entered since begin_round().
  Rank best_of_round() const { return best_of_round_; }
  // `most_gained`: the most seconds by which a plan derived from `candidate` may be faster. Returns the
  // forecast seconds of the step, or infinity if the plan does not fit.
  double enter(const PlannedSchedule& candidate, double most_gained = 0);

  // Returns true only if a plan with a peak of `bytes` or more neither fits nor has the lowest peak.
  bool is_too_large(std::uint64_t bytes) const {
    return bytes > budgets_.device_bytes && bytes >= smallest_peak_bytes_ && !smallest_exceeds_host_;
  }

  const Budgets& budgets() const { return budgets_; }
  // The page-locked bytes of the plan that was entered first.
  std::uint64_t first_host_bytes() const { return first_host_bytes_; }
  // The seconds of the fastest plan that fits; infinite if none does.
  double best_seconds() const { return best_rank_.first; }
  // The best of the plans that count as plans of `problem`, which must have had a round, or of a problem
  // after it. The reference is valid until a round of a new problem. The same reference means the same plan.
  const Best& best_from(std::size_t problem) const;
  // The lowest peak of all plans that were entered.
  std::uint64_t smallest_peak_bytes() const { return smallest_peak_bytes_; }
  // Requires that a plan has been entered.
  PlannedSchedule winner() const;
  // Plans that fit and may become the fastest, the most promising first. Each problem has a few such plans,
  // however many problems there are.
  std::vector<Leader> leaders() const;

 private:
  void lead(Leader leader);

  const Tape& tape_;
  const Budgets& budgets_;
  const Forecaster& forecaster_;
  std::size_t problem_ = 0;
  std::vector<std::vector<Leader>> leaders_;  // by problem: a few, the most promising first
  std::vector<Best> bests_;                   // by problem
  Rank best_rank_ = kNoRank;
  Rank best_of_round_ = kNoRank;
  std::optional<PlannedSchedule> smallest_;
  bool smallest_exceeds_host_ = false;
  std::uint64_t smallest_peak_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t first_host_bytes_ = 0;
};

}  // namespace vdnn::optimal
