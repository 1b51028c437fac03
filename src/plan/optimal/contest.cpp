#include "src/plan/optimal/contest.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace vdnn::optimal {

namespace {

constexpr int kLeaders = 8;

// The peak is in whole granules, so schedules with the same peak may differ in the bytes that they reserve.
bool is_closer(const Schedule& one, const Schedule& other) {
  return one.arena_bytes > 0 && one.arena_bytes < other.arena_bytes;
}

bool is_better(const Rank& rank, const Schedule& schedule, const Best& than) {
  return rank < than.rank || (than.plan && rank == than.rank && is_closer(schedule, than.plan->schedule));
}

}  // namespace

void Contest::begin_round(std::size_t problem) {
  problem_ = problem;
  leaders_.resize(std::max(leaders_.size(), problem + 1));
  bests_.resize(leaders_.size());
  best_of_round_ = kNoRank;
}

double Contest::enter(const PlannedSchedule& candidate, double most_gained) {
  const Forecast said = forecaster_.forecast(tape_, candidate.schedule);
  if (!smallest_) {
    first_host_bytes_ = said.host_bytes;
  }
  if (said.fits(budgets_)) {
    const Rank rank(said.step_seconds, said.peak_bytes);
    best_of_round_ = std::min(best_of_round_, rank);
    best_rank_ = std::min(best_rank_, rank);
    if (Best& mine = bests_.at(problem_); is_better(rank, candidate.schedule, mine)) {
      mine = {.rank = rank, .plan = candidate};
    }
    if (most_gained > 0) {
      lead({.problem = problem_,
            .seconds = rank.first,
            .least_seconds = rank.first - most_gained,
            .schedule = candidate});
    }
  }
  const bool exceeds_host = said.host_bytes > budgets_.host_bytes;
  if (!smallest_ ||
      std::pair(exceeds_host, said.peak_bytes) < std::pair(smallest_exceeds_host_, smallest_peak_bytes_)) {
    smallest_ = candidate;
    smallest_exceeds_host_ = exceeds_host;
    smallest_peak_bytes_ = said.peak_bytes;
  }
  return said.fits(budgets_) ? said.step_seconds : kNoRank.first;
}

// Keeps only the first of several plans with the same seconds, since these may be the same plan.
void Contest::lead(Leader leader) {
  const auto seconds = [](const Leader& each) { return std::pair(each.expected_seconds(), each.seconds); };
  std::vector<Leader>& mine = leaders_.at(problem_);
  const auto next = std::ranges::lower_bound(mine, seconds(leader), {}, seconds);
  const bool is_known = next != mine.end() && seconds(*next) == seconds(leader);
  if (!is_known && next - mine.begin() < kLeaders) {
    mine.insert(next, std::move(leader));
    mine.resize(std::min<std::size_t>(mine.size(), kLeaders));
  }
}

std::vector<Leader> Contest::leaders() const {
  std::vector<Leader> result;
  for (const std::vector<Leader>& mine : leaders_) {
    std::ranges::copy_if(mine, std::back_inserter(result),
                         [this](const Leader& each) { return each.least_seconds < best_seconds(); });
  }
  std::ranges::stable_sort(result, {}, &Leader::expected_seconds);
  return result;
}

const Best& Contest::best_from(std::size_t problem) const {
  const Best* best = &bests_.at(problem);
  for (const Best& each : std::span(bests_).subspan(problem)) {
    if (each.plan && is_better(each.rank, each.plan->schedule, *best)) {
      best = &each;
    }
  }
  return *best;
}

PlannedSchedule Contest::winner() const {
  const Best& best = best_from(0);
  PlannedSchedule chosen = best.plan ? *best.plan : *smallest_;
  chosen.smallest_peak_bytes = smallest_peak_bytes_;
  return chosen;
}

}  // namespace vdnn::optimal
