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

class Contest {
 public:
  Contest(const Tape& tape, const Budgets& budgets, const Forecaster& forecaster)
      : tape_(tape), budgets_(budgets), forecaster_(forecaster) {}

  void enter(const PlannedSchedule& candidate);

  const Budgets& budgets() const { return budgets_; }
  // Page-locked memory of the plan that was entered first.
  std::uint64_t first_host_bytes() const { return first_host_bytes_; }
  // Of the fastest that fits; infinite: none does.
  double best_seconds() const { return best_rank().first; }
  Rank best_rank() const {
    return leaders_.empty() ? Rank(std::numeric_limits<double>::infinity(), 0) : leaders_.front().rank;
  }
  // The lowest of all.
  std::uint64_t smallest_peak_bytes() const { return smallest_peak_bytes_; }
  // The fastest that fits, else the one with the lowest peak. At least one was entered.
  PlannedSchedule winner() const;
  // The fastest that fit, a few, the fastest first.
  std::vector<PlannedSchedule> leaders() const;

 private:
  struct Leader {
    Rank rank;
    PlannedSchedule schedule;
  };
  void place(const PlannedSchedule& candidate, const Forecast& said);

  const Tape& tape_;
  const Budgets& budgets_;
  const Forecaster& forecaster_;
  std::vector<Leader> leaders_;
  std::optional<PlannedSchedule> smallest_;
  bool smallest_exceeds_host_ = false;
  std::uint64_t smallest_peak_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t first_host_bytes_ = 0;
};

}  // namespace vdnn::optimal
