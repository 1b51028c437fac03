#include "src/plan/optimal/contest.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vdnn::optimal {

namespace {

constexpr std::size_t kLeaders = 8;

}  // namespace

void Contest::enter(const PlannedSchedule& candidate) {
  const Forecast said = forecaster_.forecast(tape_, candidate.schedule);
  if (!smallest_) {
    first_host_bytes_ = said.host_bytes;
  }
  if (said.fits(budgets_)) {
    place(candidate, said);
  }
  const bool exceeds_host = said.host_bytes > budgets_.host_bytes;
  if (!smallest_ ||
      std::pair(exceeds_host, said.peak_bytes) < std::pair(smallest_exceeds_host_, smallest_peak_bytes_)) {
    smallest_ = candidate;
    smallest_exceeds_host_ = exceeds_host;
    smallest_peak_bytes_ = said.peak_bytes;
  }
}

// Of those with the same rank the first one counts: they may be the same plan.
void Contest::place(const PlannedSchedule& candidate, const Forecast& said) {
  const Rank rank(said.step_seconds, said.peak_bytes);
  const auto next = std::ranges::lower_bound(leaders_, rank, {}, &Leader::rank);
  if (next != leaders_.end() && next->rank == rank) {
    return;
  }
  leaders_.insert(next, {.rank = rank, .schedule = candidate});
  if (leaders_.size() > kLeaders) {
    leaders_.pop_back();
  }
}

std::vector<PlannedSchedule> Contest::leaders() const {
  std::vector<PlannedSchedule> result;
  std::ranges::transform(leaders_, std::back_inserter(result), &Leader::schedule);
  return result;
}

PlannedSchedule Contest::winner() const {
  PlannedSchedule chosen = leaders_.empty() ? *smallest_ : leaders_.front().schedule;
  chosen.smallest_peak_bytes = smallest_peak_bytes_;
  return chosen;
}

}  // namespace vdnn::optimal
