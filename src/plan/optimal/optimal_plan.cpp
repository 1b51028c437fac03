#include "vdnn/optimal_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/plan/optimal/bound.h"
#include "src/plan/optimal/candidates.h"
#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/finish.h"
#include "src/plan/optimal/search.h"
#include "src/plan/placement.h"
#include "src/plan/residency.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// The model's times rarely exceed the forecaster's by more than this fraction. For small tapes the fraction
// is larger, which leads to more forecasts; forecasts of small tapes take little time.
constexpr double kModelError = 0.001;
constexpr double kModelErrorOfSmallTapes = 0.03;
constexpr std::size_t kSmallTape = 300;  // ops

// Limits of workspaces are searched in parallel for a tape with at least this many ops.
constexpr std::size_t kParallelTape = 100;

// For each problem, closer addresses are tried for at most kCloser plans in all, of this problem and the
// problems with smaller limits. They are tried only for plans that the model estimates to be at most the
// fraction kNear slower than the fastest plan.
constexpr std::size_t kCloser = 4;
constexpr double kNear = 0.03;

// The search is not exact: in less memory it may find a faster plan. So it continues with smaller sizes. It
// stops when the plans of successive sizes are all slower than the fastest plan, by fractions that add up to
// kHopeless. The fraction of one size counts as at most kMostLost.
constexpr double kHopeless = 0.16;
constexpr double kMostLost = 0.04;

constexpr std::array kStaticPolicies{Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv,
                                     Policy::kOffloadAll};

// For the smallest budget: the largest number of plans by rules that are tried at one size.
constexpr std::size_t kMostByRules = 2;

// Once algorithms of the last resort are replaced, a plan is rarely faster than its expected_seconds() by
// more than this fraction.
constexpr double kUnexpected = 0.1;

// After this many attempts in a row that find no faster plan, no more are made (see Attempts).
constexpr std::ptrdiff_t kMostInVain = 5;

// The smallest twelfth of the sizes counts as tight.
constexpr std::size_t kTightSizes = 12;

// For a tape that is not small, the search improves a plan only if the plan could become the fastest. The
// plan's gain (see Gains) is assumed to be better than the best so far by the largest of three fractions:
// kMoreGained; at tight sizes kMoreGainedWhereTight; and kGainsDiffer times what the best so far has saved,
// since large gains differ more.
constexpr double kMoreGained = 0.01;
constexpr double kMoreGainedWhereTight = 0.1;
constexpr double kGainsDiffer = 0.9;

// Workspace limits in bytes: powers of two, and 0. The limits do not depend on the user's limit. So if the
// user sets one of them, nearly all plans found under it are also found without the user's limit.
constexpr std::uint64_t kLargestLimit = std::uint64_t{1} << 40U;
constexpr std::uint64_t kSmallestLimit = std::uint64_t{1} << 9U;

std::vector<std::uint64_t> limits_below(std::uint64_t own) {
  std::vector<std::uint64_t> limits;
  for (std::uint64_t limit = kLargestLimit; limit >= kSmallestLimit; limit /= 2) {
    limits.push_back(limit);
  }
  limits.push_back(0);
  std::erase_if(limits, [own](std::uint64_t limit) { return limit >= own; });
  return limits;
}

// The problem under a workspace limit. A limit only removes choices of algorithms. But the search is not
// exact, and often finds faster plans if there are fewer choices.
class Limited {
 public:
  // `first`: the first problem (see optimal::Candidates), or null if this is the first.
  Limited(const Tape& tape, const PlanOptions& options, const PlanCosts& costs, std::uint64_t limit,
          const Limited* first, optimal::Contest& contest, Placements& placements)
      : limit_(limit == optimal::kNoLimit ? options.workspace_limit : limit),
        problem_(tape, options, costs, limit),
        candidates_(problem_, first == nullptr ? problem_ : first->problem_, options, contest, placements),
        bound_(first == nullptr ? optimal::Bound(problem_) : optimal::Bound(problem_, first->bound_)) {}

  std::optional<std::uint64_t> limit() const { return limit_; }
  // Whether each op has an algorithm within the limit.
  bool all_obey() const {
    for (OpId op = 0; op < problem_.slots(); ++op) {
      if (limit_ && problem_.least_workspace(op) > round_up(*limit_, problem_.costs().alignment_bytes)) {
        return false;
      }
    }
    return true;
  }
  const optimal::Problem& problem() const { return problem_; }
  optimal::Candidates& candidates() { return candidates_; }
  // The bound of optimal::Bound, with `bytes` for all that is not persistent.
  double bound_seconds(std::uint64_t bytes, double enough) {
    return bound_.seconds(problem_.persistent_bytes() + bytes, enough);
  }
  optimal::Found try_rules(std::uint64_t bytes, std::uint64_t host_bytes) {
    if (!search_) {
      search_.emplace(problem_, host_bytes);
    }
    return search_->try_rules(bytes);
  }
  // Improves the result of the last try_rules().
  void improve(optimal::Found& found, optimal::Effort effort) { search_->improve(found, effort); }
  // The least seconds that a plan of the decisions can have, by the model.
  double least_seconds(const optimal::Found& found) {
    return found.seconds - candidates_.lost_to_last_resorts(found.decisions, found.bytes);
  }

 private:
  std::optional<std::uint64_t> limit_;
  optimal::Problem problem_;
  optimal::Candidates candidates_;
  optimal::Bound bound_;
  std::optional<optimal::Search> search_;
};

// Counts failed attempts in a row to find a faster plan, by problem. A user's limit excludes the first
// problems. So attempts with their plans do not count against the plans of other problems.
class Attempts {
 public:
  // `contest` must outlive this object.
  explicit Attempts(const optimal::Contest& contest) : contest_(contest) {}

  // Whether too many attempts with plans of this problem, or of problems after it, have failed.
  bool exhausted(std::size_t problem) const {
    const auto counts = [problem](std::size_t failed) { return failed >= problem; };
    return std::ranges::count_if(failed_, counts) >= kMostInVain;
  }
  // Calls `attempt`, which enters plans that are derived from a plan of the problem. It succeeds if one of
  // them is faster than all known plans, or is a plan of the problem and faster than all plans of this
  // problem and of the problems after it. A failure does not count if these problems have no plan that fits.
  template <class Attempt>
  void make(std::size_t problem, const Attempt& attempt) {
    const double before = best_from(problem);
    const double best_before = contest_.best_seconds();
    attempt();
    if (best_from(problem) < before || contest_.best_seconds() < best_before) {
      std::erase_if(failed_, [problem](std::size_t failed) { return failed >= problem; });
    } else if (before < optimal::kNoRank.first) {
      failed_.push_back(problem);
    }
  }

 private:
  double best_from(std::size_t problem) const { return contest_.best_from(problem).rank.first; }

  const optimal::Contest& contest_;
  std::vector<std::size_t> failed_;  // the problems of the failed attempts
};

class Chooser {
 public:
  Chooser(const Tape& tape, const PlanOptions& options, const Budgets& budgets, const PlanCosts& costs,
          const Forecaster& forecaster)
      : tape_(tape), options_(options), costs_(costs), contest_(tape, budgets, forecaster) {
    open_problems();
  }

  PlannedSchedule choose() {
    keep_everything();
    const std::uint64_t host = contest_.budgets().host_bytes;
    host_bytes_ = host - std::min(host, contest_.first_host_bytes());
    // The first plan offloads nothing, so no plan needs less page-locked memory. If that exceeds the budget,
    // no plan fits, and a search for the fastest would be useless.
    if (contest_.first_host_bytes() <= host) {
      choose_among_sizes();
    }
    consider_static_policies();
    consider_without_last_resorts();
    find_smallest();
    // The smallest budget must not depend on the run's budget, but the following plans do.
    const std::uint64_t smallest = contest_.smallest_peak_bytes();
    if (first_that_fits_) {
      enter(*first_that_fits_, optimal::Insistence::kUsual);
    }
    finish();
    PlannedSchedule winner = contest_.winner();
    winner.smallest_peak_bytes = smallest;
    return winner;
  }

 private:
  // Opens one problem with the user's limit, or without a limit if the user has set none. Then opens one for
  // each lower limit that leaves fewer choices than the previous limit.
  void open_problems() {
    open_problem(optimal::kNoLimit);
    const optimal::Problem& first = problems_.front()->problem();
    std::vector<std::uint32_t> before = first_choices_within(optimal::kNoLimit);
    for (const std::uint64_t limit : limits_below(options_.workspace_limit.value_or(optimal::kNoLimit))) {
      std::vector<std::uint32_t> now = first_choices_within(limit);
      if (now != before) {
        open_problem(limit);
        before = std::move(now);
      }
    }
    // The sizes are those without the user's limit, so that they do not depend on it.
    if (options_.workspace_limit) {
      PlanOptions unlimited = options_;
      unlimited.workspace_limit.reset();
      sizes_ = optimal::sizes(optimal::Problem(tape_, unlimited, costs_));
    } else {
      sizes_ = optimal::sizes(first);
    }
  }

  void open_problem(std::uint64_t limit) {
    const Limited* const first = problems_.empty() ? nullptr : problems_.front().get();
    problems_.push_back(
        std::make_unique<Limited>(tape_, options_, costs_, limit, first, contest_, placements_));
  }

  // By op: its first choice within the limit.
  std::vector<std::uint32_t> first_choices_within(std::uint64_t limit) const {
    const optimal::Problem& first = problems_.front()->problem();
    std::vector<std::uint32_t> result;
    for (OpId op = 0; op < first.slots(); ++op) {
      result.push_back(first.first_within(op, limit));
    }
    return result;
  }

  // Enters plans that keep every value. The first of these plans determines the page-locked memory of a step
  // without offloading, and ensures that at least one plan exists.
  void keep_everything() {
    const std::uint64_t device = contest_.budgets().device_bytes;
    for (std::size_t problem = 0; problem < problems_.size(); ++problem) {
      Limited& limited = *problems_[problem];
      contest_.begin_round(problem);
      const std::uint64_t least = least_with_everything(limited.problem());
      const bool fits = limited.candidates().committed_bytes(least) <= device;
      if (problem == 0) {
        keep_everything_within(limited, fits ? device : std::numeric_limits<std::uint64_t>::max());
      } else if (fits &&
                 limited.bound_seconds(sizes_.back(), contest_.best_seconds()) < contest_.best_seconds()) {
        keep_everything_within(limited, device);
      }
    }
  }

  static void keep_everything_within(Limited& limited, std::uint64_t device_bytes) {
    const optimal::Problem& problem = limited.problem();
    limited.candidates().consider({.fates = optimal::Fates(problem.gaps().size(), optimal::Fate::kKeep),
                                   .least_choice = std::vector<std::uint8_t>(problem.slots(), 0)},
                                  problem.most_bytes(), device_bytes);
  }

  static std::uint64_t least_with_everything(const optimal::Problem& problem) {
    std::uint64_t least = 0;
    for (OpId op = 0; op < problem.slots(); ++op) {
      least = std::max(least, problem.resident_bytes()[op] + problem.least_workspace(op));
    }
    return least;
  }

  // The least seconds that the forecaster may report for a plan for which the model predicts `seconds`.
  double at_least(double seconds) const {
    return seconds * (1 - (is_small() ? kModelErrorOfSmallTapes : kModelError));
  }
  bool is_small() const { return tape_.ops().size() <= kSmallTape; }
  bool is_searched_in_parallel() const { return tape_.ops().size() >= kParallelTape; }

  // Searches from the largest size within the budget downwards.
  void choose_among_sizes() {
    const std::uint64_t device = contest_.budgets().device_bytes;
    const std::uint64_t most = device - std::min(device, problems_.front()->problem().persistent_bytes());
    double lost = 0;
    for (auto size = std::ranges::upper_bound(sizes_, most) - sizes_.begin(); size > 0 && lost < kHopeless;
         --size) {
      const double seconds = choose_among_limits(static_cast<std::size_t>(size - 1));
      const double part = seconds / contest_.best_seconds() - 1;
      lost = part > 0 ? lost + std::min(part, kMostLost) : 0;
    }
    insist();
    consider_closer();
  }

  void consider_without_last_resorts() {
    Attempts attempts(contest_);
    for (const optimal::Leader& leader : contest_.leaders()) {
      if (leader.expected_seconds() * (1 - kUnexpected) < contest_.best_seconds() &&
          !attempts.exhausted(leader.problem)) {
        attempts.make(leader.problem, [&] { replace_last_resorts(leader); });
      }
    }
  }

  // Replaces algorithms of the last resort by other algorithms. If that makes the plan faster, tries smaller
  // workspaces, which may make it still faster.
  void replace_last_resorts(const optimal::Leader& leader) {
    const double before = contest_.best_seconds();
    for (std::size_t problem = 0; problem <= leader.problem; ++problem) {
      contest_.begin_round(problem);
      problems_[problem]->candidates().consider_without_last_resorts(leader, contest_.budgets().device_bytes);
      if (contest_.best_seconds() == before) {
        return;
      }
    }
  }

  // Tries closer addresses for the fastest plan and a few plans that are nearly as fast, since closer
  // addresses may change their order. Every plan that is tried under a limit of the user is also tried
  // without that limit.
  void consider_closer() {
    std::vector<bool> chosen(found_.size(), false);
    for (std::size_t first = 0; first < problems_.size(); ++first) {
      for (const std::size_t each : fastest_from(first)) {
        chosen[each] = true;
      }
    }
    for (std::size_t each = 0; each < found_.size(); ++each) {
      const Candidate& one = found_[each];
      if (chosen[each] && one.least_seconds * (1 - kNear) < contest_.best_seconds()) {
        contest_.begin_round(one.problem);
        problems_[one.problem]->candidates().consider_closer(one.found.decisions, one.found.bytes,
                                                             contest_.budgets().device_bytes);
      }
    }
  }

  // Plans of problem `first` and of the problems after it, as indices into found_: the plan with the best
  // forecast, then the plans that are fastest by the model.
  std::vector<std::size_t> fastest_from(std::size_t first) const {
    std::vector<std::size_t> result;
    for (std::size_t each = 0; each < found_.size(); ++each) {
      if (found_[each].problem >= first && found_[each].fits()) {
        result.push_back(each);
      }
    }
    if (result.empty()) {
      return result;
    }
    const auto rank = [this](std::size_t each) { return found_[each].rank; };
    const auto best = std::ranges::min_element(result, {}, rank);
    std::iter_swap(result.begin(), best);
    const auto seconds = [this](std::size_t each) { return found_[each].found.seconds; };
    std::ranges::stable_sort(result.begin() + 1, result.end(), {}, seconds);
    result.resize(std::min(result.size(), kCloser));
    return result;
  }

  struct Candidate {
    std::size_t problem = 0;
    optimal::Found found;
    double least_seconds = std::numeric_limits<double>::infinity();  // see Limited::least_seconds()
    optimal::Rank rank = optimal::kNoRank;                           // the best forecast
    std::optional<double> gain = {};                                 // see Gains

    // Whether a plan with addresses was found that fits in the budgets.
    bool fits() const { return rank != optimal::kNoRank; }
    // The model's seconds if half of the time lost to algorithms of the last resort is saved.
    double expected_seconds() const { return (found.seconds + least_seconds) / 2; }
  };

  // A gain is the time of an improved plan, as a fraction of its time before the improvement. So the least
  // gain is the best. Keeps the best gain for each effort.
  class Gains {
   public:
    // The least gain that was noted; 0 if none was.
    double least(optimal::Effort effort) const { return least_.at(static_cast<std::size_t>(effort)); }
    void note(optimal::Effort effort, double gain) {
      double& least = least_.at(static_cast<std::size_t>(effort));
      least = least == 0 ? gain : std::min(least, gain);
    }

   private:
    std::array<double, 2> least_{};  // by effort
  };

  // Until a plan and a gain are known, first searches under the user's limit alone. The plan found there may
  // show that other limits cannot help. Its gain may show that improvements of other plans cannot help.
  // Afterwards, all limits of a tape of kParallelTape ops or more are searched at once. Returns the model's
  // time of the fastest plan. A plan that was not improved counts with the time that it would have after the
  // best gain so far.
  double choose_among_limits(std::size_t size) {
    const optimal::Effort effort = effort_of(size);
    const bool is_informed = any_fits() && gains_.least(effort) > 0;
    if (is_informed && is_searched_in_parallel()) {
      return consider(find(0, problems_.size(), size), effort);
    }
    const double first = consider(find(0, 1, size), effort);
    return std::min(first, consider(find(1, problems_.size(), size), effort));
  }

  optimal::Effort effort_of(std::size_t size) const {
    return size <= sizes_.size() / kTightSizes ? optimal::Effort::kTight : optimal::Effort::kUsual;
  }

  // Considers candidates in order of the model's time. Leaves out candidates that cannot be faster than the
  // best forecast.
  double consider(std::vector<Candidate> candidates, optimal::Effort effort) {
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& each : candidates) {
      if (each.gain) {
        gains_.note(effort, *each.gain);
      }
      least = std::min(least, each.found.seconds * (each.gain ? 1 : gains_.least(effort)));
    }
    std::ranges::stable_sort(candidates, {}, [](const Candidate& each) { return each.found.seconds; });
    for (Candidate& each : candidates) {
      if (at_least(each.least_seconds) < contest_.best_seconds()) {
        enter(each, is_small() ? optimal::Insistence::kUsual : optimal::Insistence::kNone);
      }
    }
    std::ranges::move(candidates, std::back_inserter(found_));
    return least;
  }

  void enter(Candidate& candidate, optimal::Insistence insistence) {
    contest_.begin_round(candidate.problem);
    problems_[candidate.problem]->candidates().consider(candidate.found.decisions, candidate.found.bytes,
                                                        contest_.budgets().device_bytes, insistence);
    candidate.rank = contest_.best_of_round();
  }

  // Tries other schedules for plans without addresses, the most promising first. In little memory that takes
  // most of the time. It comes after the search of all sizes, because the fastest plan with addresses
  // excludes most of these plans. For a small tape, other schedules have been tried at once.
  void insist() {
    if (is_small()) {
      return;
    }
    std::vector<Candidate*> without_addresses;
    for (Candidate& each : found_) {
      if (each.found.any() && !each.fits()) {
        without_addresses.push_back(&each);
      }
    }
    const auto seconds = [](const Candidate* each) { return each->expected_seconds(); };
    std::ranges::stable_sort(without_addresses, {}, seconds);
    Attempts attempts(contest_);
    for (Candidate* const each : without_addresses) {
      if (at_least(each->least_seconds) < contest_.best_seconds() && !attempts.exhausted(each->problem)) {
        attempts.make(each->problem, [&] { enter(*each, optimal::Insistence::kUsual); });
      }
    }
  }

  // Searches the problems from `begin` up to, but not including, `end`. Uses several threads if that is
  // faster.
  std::vector<Candidate> find(std::size_t begin, std::size_t end, std::size_t size) const {
    const std::uint64_t bytes = sizes_[size];
    const auto search = [this, bytes, effort = effort_of(size)](std::size_t problem) {
      return look_for(problem, bytes, effort);
    };
    // If no thread can be started, the search runs on this thread when its result is needed.
    const auto policy = end - begin > 1 && is_searched_in_parallel()
                            ? std::launch::async | std::launch::deferred
                            : std::launch::deferred;
    std::vector<std::future<Candidate>> searches;
    for (std::size_t problem = begin; problem < end; ++problem) {
      if (problems_[problem]->bound_seconds(bytes, contest_.best_seconds()) < contest_.best_seconds()) {
        searches.push_back(std::async(policy, search, problem));
      }
    }
    std::vector<Candidate> found;
    found.reserve(searches.size());
    for (std::future<Candidate>& each : searches) {
      found.push_back(each.get());
    }
    return found;
  }

  // The best gain that an improvement may have.
  double least_gain(optimal::Effort effort) const {
    const double known = gains_.least(effort);
    const double least_more = effort == optimal::Effort::kTight ? kMoreGainedWhereTight : kMoreGained;
    return known * (1 - std::max(least_more, kGainsDiffer * (1 - known)));
  }

  Candidate look_for(std::size_t problem, std::uint64_t bytes, optimal::Effort effort) const {
    Limited& limited = *problems_[problem];
    Candidate result{.problem = problem, .found = limited.try_rules(bytes, host_bytes_)};
    if (!result.found.any()) {
      return result;
    }
    const double by_rules = result.found.seconds;
    const double may_gain = by_rules * (1 - least_gain(effort));
    if (is_small() || at_least(limited.least_seconds(result.found) - may_gain) < contest_.best_seconds()) {
      limited.improve(result.found, effort);
      result.gain = result.found.seconds / by_rules;
    }
    result.least_seconds = limited.least_seconds(result.found);
    return result;
  }

  // The best plan under a limit may gain more than the best plan of all.
  void finish() {
    std::vector<const optimal::Problem*> problems;
    for (const std::unique_ptr<Limited>& limited : problems_) {
      problems.push_back(&limited->problem());
    }
    optimal::finish(problems, contest_, placements_);
  }

  // Finds the smallest budget, whatever the run's budget. Tries every size that may lead to a lower peak in
  // plans by rules. Then tries still smaller sizes in improved plans, the largest first, until one fails.
  void find_smallest() {
    for (const std::uint64_t bytes : sizes_) {
      if (!may_lower_peak(bytes)) {
        break;
      }
      fit_into(bytes, false);
    }
    const auto larger =
        std::ranges::partition_point(sizes_, [this](std::uint64_t bytes) { return may_lower_peak(bytes); });
    for (auto size = larger; size != sizes_.begin(); --size) {
      const std::uint64_t bytes = *std::prev(size);
      if (may_lower_peak(bytes) && !fit_into(bytes, true)) {
        break;
      }
    }
  }

  // Whether a plan of this size would have a lower peak than all known plans.
  bool may_lower_peak(std::uint64_t bytes) const {
    return problems_.front()->candidates().committed_bytes(bytes) < contest_.smallest_peak_bytes();
  }

  // Tries plans of a size, the smallest workspaces first, until one fits into the size. Addresses are not
  // found for every plan. Returns whether one fits.
  bool fit_into(std::uint64_t bytes, bool improved) {
    const std::size_t most = improved ? problems_.size() : kMostByRules;
    std::size_t tried = 0;
    for (std::size_t problem = problems_.size(); problem-- > 0 && tried < most && may_lower_peak(bytes);) {
      Limited& limited = *problems_[problem];
      optimal::Found found = limited.try_rules(bytes, host_bytes_);
      if (!found.any()) {
        continue;
      }
      if (improved) {
        limited.improve(found, optimal::Effort::kTight);
      }
      ++tried;
      const bool any_fits = this->any_fits();
      contest_.begin_round(problem);
      limited.candidates().consider(found.decisions, bytes, limited.candidates().committed_bytes(bytes),
                                    optimal::Insistence::kToFit);
      if (!any_fits && this->any_fits()) {
        first_that_fits_ = {.problem = problem, .found = std::move(found)};
      }
    }
    return !may_lower_peak(bytes);
  }

  bool any_fits() const { return contest_.best_seconds() < optimal::kNoRank.first; }

  // Under each limit, the plans of static policies are candidates, too.
  void consider_static_policies() {
    const Plan small =
        static_plan(Policy::kOffloadNone, AlgorithmPreference::kMemory, options_.workspace_limit);
    std::vector<std::uint32_t> before = small.algorithms;
    for (std::size_t problem = 0; problem < problems_.size(); ++problem) {
      const Limited& limited = *problems_[problem];
      if (!limited.all_obey()) {
        continue;  // no policy has a plan within the limit
      }
      contest_.begin_round(problem);
      const auto fast_plan = [&](Policy policy) {
        return static_plan(policy, AlgorithmPreference::kPerformance, limited.limit());
      };
      if (std::vector<std::uint32_t> now = fast_plan(Policy::kOffloadNone).algorithms; now != before) {
        before = std::move(now);
        for (const Policy policy : kStaticPolicies) {
          consider(fast_plan(policy), false);
        }
      }
    }
    contest_.begin_round(problems_.size() - 1);
    for (const Policy policy : kStaticPolicies) {
      consider(static_plan(policy, AlgorithmPreference::kMemory, options_.workspace_limit),
               policy == Policy::kOffloadAll);
    }
  }

  Plan static_plan(Policy policy, AlgorithmPreference preference, std::optional<std::uint64_t> limit) const {
    PlanOptions options = options_;
    options.policy = policy;
    options.preference = preference;
    options.workspace_limit = limit;
    Plan plan = make_plan(tape_, options);
    plan.options = options_;
    return plan;
  }

  // Enters the plan if it may be faster than the best plan, or if `least_memory` is true. Forecasts no plan
  // that is too large.
  void consider(Plan plan, bool least_memory) {
    double seconds = 0;
    double link = 0;
    for (OpId op = 0; op < tape_.ops().size(); ++op) {
      seconds += costs_.op_seconds[op][plan.algorithms[op]];
    }
    for (const Transfer& transfer : plan.transfers) {
      link += static_cast<double>(tape_.value(transfer.value).bytes) / costs_.device_to_host;
    }
    if (least_memory || std::max(seconds, link) < contest_.best_seconds()) {
      Schedule schedule = make_schedule(tape_, plan);
      if (!contest_.is_too_large(most_bytes_in_use(schedule))) {
        contest_.enter({.plan = std::move(plan), .schedule = std::move(schedule)});
      }
    }
  }

  const Tape& tape_;
  const PlanOptions& options_;
  const PlanCosts& costs_;
  optimal::Contest contest_;
  Placements placements_;
  std::vector<std::unique_ptr<Limited>> problems_;  // first the user's limit, if any, then lower limits
  std::vector<std::uint64_t> sizes_;                // see optimal::sizes()
  std::uint64_t host_bytes_ = 0;                    // page-locked bytes that offloads may use
  std::vector<Candidate> found_;
  // The first plan of find_smallest() that fits the run's budget, if none fitted before. It was arranged for
  // little memory, so another schedule of it may be faster.
  std::optional<Candidate> first_that_fits_;
  Gains gains_;
};

}  // namespace

PlannedSchedule plan_optimal(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                             const PlanCosts& costs, const Forecaster& forecaster) {
  const PlanOptions kept = with_kept_algorithms(tape, options);
  return Chooser(tape, kept, budgets, costs, forecaster).choose();
}

}  // namespace vdnn
