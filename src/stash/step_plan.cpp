#include "src/stash/step_plan.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "src/stash/absences.h"

namespace vdnn::stash {

namespace {

// By event: whether any tensor could be away, windows aside.
std::vector<bool> may_be_lessened(const StepRecord& step) {
  std::vector<bool> events(step.events.size(), false);
  for (const Absence& absence : absences_of(step, 0)) {
    std::fill(events.begin() + static_cast<std::ptrdiff_t>(absence.begin),
              events.begin() + static_cast<std::ptrdiff_t>(absence.end), true);
  }
  return events;
}

using Demands = std::vector<std::int64_t>;  // by event: bytes that have to be away, if positive

Demands demands_of(const StepRecord& step, const StepLimits& limits) {
  const std::vector<bool> may_be_met = may_be_lessened(step);
  Demands demands;
  bool is_reading = false;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    is_reading = is_reading || step.events[i].kind == StepEvent::Kind::kRead;
    const std::uint64_t taken = step.events[i].in_use_bytes + (is_reading ? limits.ahead_bytes : 0);
    const auto demand = static_cast<std::int64_t>(taken) - static_cast<std::int64_t>(limits.budget_bytes);
    demands.push_back(may_be_met[i] ? demand : 0);
  }
  return demands;
}

// A set of candidates, with what it leaves to be covered.
class Cover {
 public:
  Cover(const std::vector<Absence>& candidates, Demands demands)
      : candidates_(candidates), left_(std::move(demands)), chosen_(candidates.size(), false) {}

  const std::vector<bool>& chosen() const { return chosen_; }
  std::uint64_t bytes() const { return bytes_; }
  std::int64_t left(std::size_t event) const { return left_[event]; }

  // The event with the largest demand, the first among equals; none where no demand is left.
  std::optional<std::size_t> worst_event() const {
    const auto worst = std::ranges::max_element(left_);
    if (worst == left_.end() || *worst <= 0) {
      return std::nullopt;
    }
    return static_cast<std::size_t>(worst - left_.begin());
  }

  void add(std::size_t index) { change(index, true); }
  void remove(std::size_t index) { change(index, false); }

  bool is_redundant(std::size_t index) const {
    const Absence& candidate = candidates_[index];
    for (std::size_t event = candidate.begin; event < candidate.end; ++event) {
      if (left_[event] + static_cast<std::int64_t>(candidate.bytes) > 0) {
        return false;
      }
    }
    return true;
  }

 private:
  void change(std::size_t index, bool chosen) {
    const Absence& candidate = candidates_[index];
    const auto bytes = static_cast<std::int64_t>(candidate.bytes);
    for (std::size_t event = candidate.begin; event < candidate.end; ++event) {
      left_[event] += chosen ? -bytes : bytes;
    }
    bytes_ = chosen ? bytes_ + candidate.bytes : bytes_ - candidate.bytes;
    chosen_[index] = chosen;
  }

  const std::vector<Absence>& candidates_;
  Demands left_;
  std::vector<bool> chosen_;
  std::uint64_t bytes_ = 0;
};

// The larger first; among equals the one that is away longer, which has more time to come back.
std::vector<Absence> in_order_of_choice(std::vector<Absence> candidates) {
  std::ranges::stable_sort(candidates, [](const Absence& a, const Absence& b) {
    return std::pair(a.bytes, a.end - a.begin) > std::pair(b.bytes, b.end - b.begin);
  });
  return candidates;
}

// The smallest that covers the demand alone, the longest away among equals; where there is none, the largest.
std::optional<std::size_t> best_for(std::size_t event, const std::vector<Absence>& candidates,
                                    const Cover& cover) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (cover.chosen()[i] || !candidates[i].is_away_at(event)) {
      continue;
    }
    const bool suffices = static_cast<std::int64_t>(candidates[i].bytes) >= cover.left(event);
    if (!best || (suffices && candidates[i].bytes < candidates[*best].bytes)) {
      best = i;
    }
  }
  return best;
}

// Whether no demand is left.
bool cover_greedily(const std::vector<Absence>& candidates, Cover& cover) {
  while (const std::optional<std::size_t> event = cover.worst_event()) {
    const std::optional<std::size_t> best = best_for(*event, candidates, cover);
    if (!best) {
      return false;
    }
    cover.add(*best);
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (cover.chosen()[i] && cover.is_redundant(i)) {
      cover.remove(i);
    }
  }
  return true;
}

class BranchAndBound {
 public:
  BranchAndBound(const std::vector<Absence>& candidates, Demands demands, const Cover& first)
      : candidates_(candidates),
        cover_(candidates, std::move(demands)),
        excluded_(candidates.size(), false),
        best_(first.chosen()),
        best_bytes_(first.bytes()) {}

  std::vector<bool> run() {
    search();
    return best_;
  }

 private:
  void search() {
    if (++nodes_ > kMostNodes) {
      return;
    }
    const std::optional<std::size_t> event = cover_.worst_event();
    if (!event) {
      if (cover_.bytes() < best_bytes_) {
        best_bytes_ = cover_.bytes();
        best_ = cover_.chosen();
      }
      return;
    }
    const auto least = static_cast<std::uint64_t>(cover_.left(*event));
    if (cover_.bytes() + least >= best_bytes_ || still_to_be_had(*event) < least) {
      return;
    }
    branch(*event);
  }

  // Each solution has one of the event's candidates as its first in this order.
  void branch(std::size_t event) {
    std::vector<std::size_t> tried;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!is_open(i, event)) {
        continue;
      }
      cover_.add(i);
      search();
      cover_.remove(i);
      excluded_[i] = true;
      tried.push_back(i);
    }
    for (const std::size_t i : tried) {
      excluded_[i] = false;
    }
  }

  bool is_open(std::size_t index, std::size_t event) const {
    return !excluded_[index] && !cover_.chosen()[index] && candidates_[index].is_away_at(event);
  }

  std::uint64_t still_to_be_had(std::size_t event) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      bytes += is_open(i, event) ? candidates_[i].bytes : 0;
    }
    return bytes;
  }

  const std::vector<Absence>& candidates_;
  Cover cover_;
  std::vector<bool> excluded_;
  std::vector<bool> best_;
  std::uint64_t best_bytes_;
  std::uint64_t nodes_ = 0;
};

std::vector<bool> all_that_lessen(const std::vector<Absence>& candidates, const Demands& demands) {
  std::vector<bool> chosen;
  for (const Absence& each : candidates) {
    bool lessens = false;
    for (std::size_t event = each.begin; event < each.end; ++event) {
      lessens = lessens || demands[event] > 0;
    }
    chosen.push_back(lessens);
  }
  return chosen;
}

// Nothing: no set covers the demands.
std::optional<std::vector<bool>> cheapest(const std::vector<Absence>& candidates, const Demands& demands) {
  Cover greedy(candidates, demands);
  if (!cover_greedily(candidates, greedy)) {
    return std::nullopt;
  }
  return BranchAndBound(candidates, demands, greedy).run();
}

// Candidates of which some leave.
struct Choice {
  StepLimits limits;
  std::vector<Absence> candidates;
  std::vector<bool> chosen;
};

Choice choose_all(const StepRecord& step, const StepLimits& limits) {
  std::vector<Absence> all = absences_of(step, limits.flight_bytes);
  std::vector<bool> chosen(all.size(), true);
  return {.limits = limits, .candidates = std::move(all), .chosen = std::move(chosen)};
}

// Nothing: with these windows the budget cannot be kept.
std::optional<Choice> choose_cheapest(const StepRecord& step, const StepLimits& limits) {
  std::vector<Absence> candidates = in_order_of_choice(absences_of(step, limits.flight_bytes));
  std::optional<std::vector<bool>> chosen = cheapest(candidates, demands_of(step, limits));
  if (!chosen) {
    return std::nullopt;
  }
  return Choice{.limits = limits, .candidates = std::move(candidates), .chosen = *std::move(chosen)};
}

StepLimits with_windows_over(const StepLimits& limits, std::uint64_t divisor) {
  return {.budget_bytes = limits.budget_bytes,
          .ahead_bytes = limits.ahead_bytes / divisor,
          .flight_bytes = limits.flight_bytes / divisor};
}

Choice choose_for_budget(const StepRecord& step, const StepLimits& limits) {
  for (std::uint64_t divisor = 1; divisor <= kNarrowestWindow; divisor *= 2) {
    if (std::optional<Choice> choice = choose_cheapest(step, with_windows_over(limits, divisor))) {
      return *std::move(choice);
    }
  }
  const StepLimits no_windows{.budget_bytes = limits.budget_bytes};
  if (std::optional<Choice> choice = choose_cheapest(step, no_windows)) {
    return *std::move(choice);
  }
  Choice best = choose_all(step, no_windows);
  best.chosen = all_that_lessen(best.candidates, demands_of(step, no_windows));
  return best;
}

Choice choose(const StepRecord& step, const StepLimits& limits) {
  if (limits.budget_bytes == 0) {
    return choose_all(step, limits);
  }
  const Demands without_windows = demands_of(step, {.budget_bytes = limits.budget_bytes});
  const bool fits = std::ranges::all_of(without_windows, [](std::int64_t demand) { return demand <= 0; });
  return fits ? Choice{.limits = limits} : choose_for_budget(step, limits);
}

}  // namespace

StepPlan plan_step(const StepRecord& step, const StepLimits& limits) {
  const Choice choice = choose(step, limits);
  StepPlan plan{.leaves = std::vector<bool>(step.tensors.size(), false),
                .ahead_bytes = choice.limits.ahead_bytes,
                .flight_bytes = choice.limits.flight_bytes};
  std::vector<Absence> leaving;
  for (std::size_t i = 0; i < choice.candidates.size(); ++i) {
    if (choice.chosen[i]) {
      leaving.push_back(choice.candidates[i]);
      plan.leaves[leaving.back().tensor] = true;
      plan.leaving_bytes += leaving.back().bytes;
    }
  }
  FetchSchedule schedule = schedule_fetches(step, leaving, plan.ahead_bytes, limits.budget_bytes);
  plan.reads = std::move(schedule.reads);
  plan.peak_bytes = schedule.peak_bytes;
  return plan;
}

bool is_same_course(const StepPlan& a, const StepPlan& b) {
  return a.leaves == b.leaves && a.reads == b.reads && a.ahead_bytes == b.ahead_bytes &&
         a.flight_bytes == b.flight_bytes;
}

std::map<std::uint64_t, std::size_t> host_blocks_of(const StepRecord& step, const std::vector<bool>& leaves) {
  std::map<std::uint64_t, std::size_t> needed;
  std::map<std::uint64_t, std::vector<std::size_t>> in_use;  // by size: after which events each goes back
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const std::uint32_t tensor = step.events[i].tensor;
    if (step.events[i].kind == StepEvent::Kind::kRead || !leaves[tensor]) {
      continue;
    }
    const std::uint64_t bytes = step.tensors[tensor].bytes;
    std::vector<std::size_t>& ends = in_use[bytes];
    std::erase_if(ends, [i](std::size_t dropped_after) { return dropped_after <= i; });
    ends.push_back(step.tensors[tensor].dropped_after);
    needed[bytes] = std::max(needed[bytes], ends.size());
  }
  return needed;
}

}  // namespace vdnn::stash
