#include "src/plan/optimal/contest.h"

#include <utility>

namespace vdnn::optimal {

void Contest::enter(const PlannedSchedule& candidate) {
  const Forecast said = forecaster_.forecast(tape_, candidate.schedule);
  if (!smallest_) {
    first_host_bytes_ = said.host_bytes;
  }
  if (said.fits(budgets_) && std::pair(said.step_seconds, said.peak_bytes) < best_rank()) {
    best_ = candidate;
    best_seconds_ = said.step_seconds;
    best_peak_bytes_ = said.peak_bytes;
  }
  const bool exceeds_host = said.host_bytes > budgets_.host_bytes;
  if (!smallest_ ||
      std::pair(exceeds_host, said.peak_bytes) < std::pair(smallest_exceeds_host_, smallest_peak_bytes_)) {
    smallest_ = candidate;
    smallest_exceeds_host_ = exceeds_host;
    smallest_peak_bytes_ = said.peak_bytes;
  }
}

PlannedSchedule Contest::winner() const {
  PlannedSchedule chosen = best_ ? *best_ : *smallest_;
  chosen.smallest_peak_bytes = smallest_peak_bytes_;
  return chosen;
}

}  // namespace vdnn::optimal
