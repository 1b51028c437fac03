#pragma once
// The plans of a tape that were forecast: the fastest that fits, of several with the same time the one with
// the lowest peak; and the one with the lowest peak of all.

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "vdnn/forecast.h"
#include "vdnn/optimal_plan.h"

namespace vdnn::optimal {

// The seconds of a step and its peak in bytes: a better plan has less.
using Rank = std::pair<double, std::uint64_t>;
constexpr Rank kNoRank(std::numeric_limits<double>::infinity(), 0);  // nothing fits

// A plan that may become faster.
struct Leader {
  double seconds = 0;        // of a step
  double least_seconds = 0;  // no step of what may become of it is shorter
  PlannedSchedule schedule;
};

class Contest {
 public:
  Contest(const Tape& tape, const Budgets& budgets, const Forecaster& forecaster)
      : tape_(tape), budgets_(budgets), forecaster_(forecaster) {}

  // Plans that are entered from here on were found for the problem of that number (from 0).
  void begin_round(std::size_t problem);
  // Of the round's plans that fit.
  Rank best_of_round() const { return best_of_round_; }
  // A plan made from this one has a step that is shorter by at most `most_gained` seconds.
  // Returns what is forecast of its step, in seconds; infinite: it does not fit.
  double enter(const PlannedSchedule& candidate, double most_gained = 0);

  const Budgets& budgets() const { return budgets_; }
  // Page-locked memory of the plan that was entered first.
  std::uint64_t first_host_bytes() const { return first_host_bytes_; }
  // Of the fastest that fits; infinite: none does.
  double best_seconds() const { return best_rank_.first; }
  // The lowest of all.
  std::uint64_t smallest_peak_bytes() const { return smallest_peak_bytes_; }
  // The fastest that fits, else the one with the lowest peak. At least one was entered.
  PlannedSchedule winner() const;
  // Those that fit and may become the fastest, the most promising first; a few of each problem, so that it
  // does not matter how many there are.
  std::vector<Leader> leaders() const;

 private:
  void lead(Leader leader);

  const Tape& tape_;
  const Budgets& budgets_;
  const Forecaster& forecaster_;
  std::size_t problem_ = 0;
  std::vector<std::vector<Leader>> leaders_;  // a problem: a few, the most promising first
  std::optional<PlannedSchedule> best_;
  Rank best_rank_ = kNoRank;
  Rank best_of_round_ = kNoRank;
  std::optional<PlannedSchedule> smallest_;
  bool smallest_exceeds_host_ = false;
  std::uint64_t smallest_peak_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t first_host_bytes_ = 0;
};

}  // namespace vdnn::optimal
