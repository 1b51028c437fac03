#include "vdnn/optimal_plan.h"

#include <algorithm>
#include <array>
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
#include "src/plan/optimal/search.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// The model's times are hardly ever above the forecaster's by more than this part; where forecasts are cheap,
// more of them are made.
constexpr double kModelError = 0.001;
constexpr double kModelErrorOfSmallTapes = 0.03;
constexpr std::size_t kSmallTape = 300;  // ops

// A tape of fewer ops is searched sooner than a thread is started.
constexpr std::size_t kLongTape = 100;

// At most kCloser plans are arranged again. By the model they are slower than the fastest by at most kNear.
constexpr std::size_t kCloser = 4;
constexpr double kNear = 0.03;

// The search is no exact one: in less memory it may find a faster plan. But where sizes one after the other
// give slower plans than the fastest, by parts of its time that add up to this, smaller ones are left out.
// One size adds at most kMostLost.
constexpr double kHopeless = 0.4;
constexpr double kMostLost = 0.2;

constexpr std::array kStaticPolicies{Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv,
                                     Policy::kOffloadAll};

// One size in twelve, the smallest, counts as tight.
constexpr std::size_t kTightSizes = 12;

// Limits of workspace in bytes: each half of the one before, and 0. They are the same for all problems, so
// that what is found under such a limit of the user's is looked at without it, too.
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

// The problem under a limit of workspace. A limit only takes choices away, yet the search, which is no exact
// one, often finds more with fewer choices.
class Limited {
 public:
  Limited(const Tape& tape, const PlanOptions& options, const PlanCosts& costs, std::uint64_t limit,
          optimal::Contest& contest)
      : limit_(limit == optimal::kNoLimit ? options.workspace_limit : limit),
        problem_(tape, options, costs, limit),
        candidates_(problem_, options, contest),
        bound_(problem_) {}

  std::optional<std::uint64_t> limit() const { return limit_; }
  // Has each op an algorithm within the limit?
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
  // See optimal::Bound; `bytes`: for what is not persistent.
  double bound_seconds(std::uint64_t bytes, double enough) {
    return bound_.seconds(problem_.persistent_bytes() + bytes, enough);
  }
  optimal::Found search(std::uint64_t bytes, optimal::Effort effort, std::uint64_t host_bytes) {
    if (!search_) {
      search_.emplace(problem_, host_bytes);
    }
    return search_->search(bytes, effort);
  }

 private:
  std::optional<std::uint64_t> limit_;
  optimal::Problem problem_;
  optimal::Candidates candidates_;
  optimal::Bound bound_;
  std::optional<optimal::Search> search_;
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
    choose_among_sizes();
    consider_static_policies();
    for (const PlannedSchedule& leader : contest_.leaders()) {
      for (const std::unique_ptr<Limited>& limited : problems_) {
        limited->candidates().consider_without_last_resorts(leader, contest_.budgets().device_bytes);
      }
    }
    find_smallest();
    return contest_.winner();
  }

 private:
  // The user's limit, if any, then those below it that leave other choices than the one before.
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
    // Nor do the sizes depend on a limit of the user's.
    if (options_.workspace_limit) {
      PlanOptions unlimited = options_;
      unlimited.workspace_limit.reset();
      sizes_ = optimal::sizes(optimal::Problem(tape_, unlimited, costs_));
    } else {
      sizes_ = optimal::sizes(first);
    }
  }

  void open_problem(std::uint64_t limit) {
    problems_.push_back(std::make_unique<Limited>(tape_, options_, costs_, limit, contest_));
  }

  // Of each op.
  std::vector<std::uint32_t> first_choices_within(std::uint64_t limit) const {
    const optimal::Problem& first = problems_.front()->problem();
    std::vector<std::uint32_t> result;
    for (OpId op = 0; op < first.slots(); ++op) {
      result.push_back(first.first_within(op, limit));
    }
    return result;
  }

  // The first plan shows the page-locked memory of a step without offloading; some plan there must be.
  void keep_everything() {
    const std::uint64_t device = contest_.budgets().device_bytes;
    for (const std::unique_ptr<Limited>& limited : problems_) {
      const std::uint64_t least = least_with_everything(limited->problem());
      const bool fits = limited->candidates().committed_bytes(least) <= device;
      if (limited == problems_.front()) {
        keep_everything_within(*limited, fits ? device : std::numeric_limits<std::uint64_t>::max());
      } else if (fits &&
                 limited->bound_seconds(sizes_.back(), contest_.best_seconds()) < contest_.best_seconds()) {
        keep_everything_within(*limited, device);
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

  // Before the forecaster has said what it is, a plan may be so much faster than the model says.
  double at_least(double seconds) const {
    return seconds * (1 - (tape_.ops().size() <= kSmallTape ? kModelErrorOfSmallTapes : kModelError));
  }

  // From the largest that the budget has.
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
    consider_closer();
  }

  // Of the fastest, and of a few that are near: addresses that lie closer together may turn their order.
  void consider_closer() {
    std::ranges::stable_sort(found_, {}, [this](const Candidate& each) {
      return std::pair(contest_.best_rank() != each.rank, each.found.seconds);
    });
    for (const auto& [limited, found, rank] : std::span(found_).first(std::min(found_.size(), kCloser))) {
      if (found.seconds * (1 - kNear) < contest_.best_seconds()) {
        limited->candidates().consider_closer(found.decisions, found.bytes, contest_.budgets().device_bytes);
      }
    }
  }

  using Problems = std::span<const std::unique_ptr<Limited>>;
  Problems first_problem() const { return Problems(problems_).first(1); }

  struct Candidate {
    Limited* limited = nullptr;
    optimal::Found found;
    optimal::Rank rank;  // where it was the best so far
  };

  // First without a limit but the user's: what is found there may rule out the others. The model's time of
  // the fastest.
  double choose_among_limits(std::size_t size) {
    const double first = consider(find(first_problem(), size));
    return std::min(first, consider(find(Problems(problems_).subspan(1), size)));
  }

  // By the model's time, as long as it may still be better than what the forecaster has said of others.
  // Returns the least.
  double consider(std::vector<Candidate> candidates) {
    std::ranges::stable_sort(candidates, {}, [](const Candidate& each) { return each.found.seconds; });
    for (auto& [limited, found, rank] : candidates) {
      if (at_least(found.seconds) < contest_.best_seconds()) {
        const optimal::Rank before = contest_.best_rank();
        limited->candidates().consider(found.decisions, found.bytes, contest_.budgets().device_bytes);
        rank = contest_.best_rank() < before ? contest_.best_rank() : rank;
      }
    }
    const double least =
        candidates.empty() ? std::numeric_limits<double>::infinity() : candidates.front().found.seconds;
    std::ranges::move(candidates, std::back_inserter(found_));
    return least;
  }

  // At once where that is faster.
  std::vector<Candidate> find(Problems problems, std::size_t size) const {
    const std::uint64_t bytes = sizes_[size];
    const bool tight = size <= sizes_.size() / kTightSizes;
    const auto search = [this, bytes, tight](Limited* limited) {
      const optimal::Effort effort = tight ? optimal::Effort::kTight : optimal::Effort::kUsual;
      return Candidate{.limited = limited, .found = limited->search(bytes, effort, host_bytes_), .rank = {}};
    };
    // Where no thread can be had, a search waits for its turn.
    const auto policy = problems.size() > 1 && tape_.ops().size() >= kLongTape
                            ? std::launch::async | std::launch::deferred
                            : std::launch::deferred;
    std::vector<std::future<Candidate>> searches;
    for (const std::unique_ptr<Limited>& limited : problems) {
      if (limited->bound_seconds(bytes, contest_.best_seconds()) < contest_.best_seconds()) {
        searches.push_back(std::async(policy, search, limited.get()));
      }
    }
    std::vector<Candidate> found;
    found.reserve(searches.size());
    for (std::future<Candidate>& each : searches) {
      found.push_back(each.get());
    }
    return found;
  }

  // The smallest budget is the same whatever the budget: every size that may lead to a lower peak is looked
  // at, with the smallest workspaces for which the recipes find a plan.
  void find_smallest() {
    for (const std::uint64_t bytes : sizes_) {
      for (auto limited = problems_.rbegin(); limited != problems_.rend(); ++limited) {
        optimal::Candidates& candidates = (*limited)->candidates();
        const std::uint64_t committed = candidates.committed_bytes(bytes);
        if (committed >= contest_.smallest_peak_bytes()) {
          return;
        }
        const optimal::Found found = (*limited)->search(bytes, optimal::Effort::kRecipesAlone, host_bytes_);
        if (found.seconds < std::numeric_limits<double>::infinity()) {
          candidates.consider(found.decisions, bytes, committed);
          break;
        }
      }
    }
  }

  // Static policies are candidates under each limit, too.
  void consider_static_policies() {
    const Plan small =
        static_plan(Policy::kOffloadNone, AlgorithmPreference::kMemory, options_.workspace_limit);
    std::vector<std::uint32_t> before = small.algorithms;
    for (const std::unique_ptr<Limited>& limited : problems_) {
      if (!limited->all_obey()) {
        continue;  // nor has any policy a plan within the limit
      }
      const auto fast_plan = [&](Policy policy) {
        return static_plan(policy, AlgorithmPreference::kPerformance, limited->limit());
      };
      if (std::vector<std::uint32_t> now = fast_plan(Policy::kOffloadNone).algorithms; now != before) {
        before = std::move(now);
        for (const Policy policy : kStaticPolicies) {
          consider(fast_plan(policy), false);
        }
      }
    }
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

  // Unless it can only be slower than what is known, and does not take the least memory either.
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
      contest_.enter({.plan = std::move(plan), .schedule = std::move(schedule)});
    }
  }

  const Tape& tape_;
  const PlanOptions& options_;
  const PlanCosts& costs_;
  optimal::Contest contest_;
  std::vector<std::unique_ptr<Limited>> problems_;  // the user's limit, if any, then ever less
  std::vector<std::uint64_t> sizes_;                // see optimal::sizes()
  std::uint64_t host_bytes_ = 0;                    // for offloads
  std::vector<Candidate> found_;
};

}  // namespace

PlannedSchedule plan_optimal(const Tape& tape, const PlanOptions& options, const Budgets& budgets,
                             const PlanCosts& costs, const Forecaster& forecaster) {
  return Chooser(tape, options, budgets, costs, forecaster).choose();
}

}  // namespace vdnn
