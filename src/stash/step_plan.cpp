#include "src/stash/step_plan.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>

#include "src/stash/absences.h"
#include "src/stash/open_candidates.h"
#include "src/stash/range_max.h"

namespace vdnn::stash {

namespace {

// More than any machine has, and small enough that sums of demands stay within 63 bits.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;

std::int64_t signed_bytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min(bytes, kMostBytes));
}

// By event: whether any tensor could be away, at least with the narrowest flight window.
std::vector<bool> may_be_lessened(const StepRecord& step) {
  std::vector<std::int64_t> changes(step.events.size() + 1, 0);  // of the number of tensors that are away
  for (const Absence& absence : absences_of(step, 0)) {
    for (const Stretch& stretch : absence.stretches) {
      ++changes[stretch.begin];
      --changes[stretch.end];
    }
  }
  std::vector<bool> events;
  std::int64_t away = 0;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    away += changes[i];
    events.push_back(away > 0);
  }
  return events;
}

using Demands = std::vector<std::int64_t>;  // by event: bytes that have to be away, if positive

Demands demands_of(const StepRecord& step, const StepLimits& limits) {
  const std::vector<bool> may_be_met = may_be_lessened(step);
  const std::int64_t budget = signed_bytes(limits.budget_bytes);
  Demands demands;
  bool is_reading = false;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    is_reading = is_reading || step.events[i].kind == StepEvent::Kind::kRead;
    const std::int64_t reserve = is_reading ? signed_bytes(limits.ahead_bytes) : 0;
    const std::int64_t demand = signed_bytes(step.events[i].in_use_bytes) + reserve - budget;
    demands.push_back(may_be_met[i] ? demand : 0);
  }
  return demands;
}

// Larger candidates come first. Among equally large ones, the candidate that is away longer comes first,
// since there is more time to copy it.
std::vector<Absence> in_order_of_choice(std::vector<Absence> candidates) {
  std::ranges::stable_sort(candidates, [](const Absence& a, const Absence& b) {
    return std::pair(a.bytes, a.events()) > std::pair(b.bytes, b.events());
  });
  return candidates;
}

// Adds `bytes` at all events at which the candidate is away.
void add(RangeMax& events, const Absence& absence, std::int64_t bytes) {
  for (const Stretch& stretch : absence.stretches) {
    events.add(stretch.begin, stretch.end, bytes);
  }
}

// A set of chosen candidates and the demands that remain. Candidates are indexed in order of choice.
class Cover {
 public:
  Cover(const std::vector<Absence>& candidates, const Demands& demands)
      : candidates_(candidates), left_(demands), open_(candidates), chosen_(candidates.size(), false) {}

  const std::vector<bool>& chosen() const { return chosen_; }
  std::uint64_t bytes() const { return bytes_; }
  std::int64_t left(std::size_t event) const { return left_.at(event); }
  std::uint64_t visits() const { return left_.visits() + open_.visits(); }

  // The event with the largest remaining demand, the first such event if there are several; absent if all
  // demands are met.
  std::optional<std::size_t> worst_event() const {
    return left_.largest() > 0 ? std::optional(left_.first_of_largest()) : std::nullopt;
  }

  void add(std::size_t index) { change(index, true); }
  void remove(std::size_t index) { change(index, false); }
  // Excludes the candidate from the choice until include().
  void exclude(std::size_t index) { open_.close(index); }
  void include(std::size_t index) { open_.open(index); }

  bool is_redundant(std::size_t index) const {
    const Absence& candidate = candidates_[index];
    return std::ranges::all_of(candidate.stretches, [&](const Stretch& stretch) {
      return left_.largest(stretch.begin, stretch.end) + signed_bytes(candidate.bytes) <= 0;
    });
  }

  // The first candidate from `from` on that is away at the event and neither chosen nor excluded.
  std::optional<std::size_t> next_open(std::size_t event, std::size_t from) const {
    return open_.first_at(event, from, candidates_.size());
  }
  // The smallest candidate that alone covers the demand of the event; among equally large ones, the candidate
  // that is away longest. If no candidate covers the demand alone, the largest candidate.
  std::optional<std::size_t> best_for(std::size_t event) const {
    const std::int64_t demand = left_.at(event);
    const std::size_t sufficient = first_smaller_than(demand);
    const std::optional<std::size_t> last = open_.last_at(event, 0, sufficient);
    if (!last) {
      return open_.first_at(event, sufficient, candidates_.size());
    }
    const std::size_t first_of_size = first_smaller_than(signed_bytes(candidates_[*last].bytes) + 1);
    return open_.first_at(event, first_of_size, *last + 1);
  }

 private:
  std::size_t first_smaller_than(std::int64_t bytes) const {
    const auto found = std::ranges::partition_point(
        candidates_, [bytes](const Absence& each) { return signed_bytes(each.bytes) >= bytes; });
    return static_cast<std::size_t>(found - candidates_.begin());
  }
  void change(std::size_t index, bool chosen) {
    const Absence& candidate = candidates_[index];
    const std::int64_t bytes = signed_bytes(candidate.bytes);
    stash::add(left_, candidate, chosen ? -bytes : bytes);
    bytes_ = chosen ? bytes_ + candidate.bytes : bytes_ - candidate.bytes;
    chosen_[index] = chosen;
    if (chosen) {
      open_.close(index);
    } else {
      open_.open(index);
    }
  }

  const std::vector<Absence>& candidates_;
  RangeMax left_;
  OpenCandidates open_;
  std::vector<bool> chosen_;
  std::uint64_t bytes_ = 0;
};

// Whether the demands are met if all candidates leave.
bool is_coverable(const std::vector<Absence>& candidates, const Demands& demands) {
  Demands changes(demands.size() + 1, 0);
  for (const Absence& candidate : candidates) {
    for (const Stretch& stretch : candidate.stretches) {
      changes[stretch.begin] += signed_bytes(candidate.bytes);
      changes[stretch.end] -= signed_bytes(candidate.bytes);
    }
  }
  std::int64_t away = 0;
  for (std::size_t event = 0; event < demands.size(); ++event) {
    away += changes[event];
    if (demands[event] > away) {
      return false;
    }
  }
  return true;
}

// Call it only if all candidates together cover the demands.
void cover_greedily(const std::vector<Absence>& candidates, Cover& cover) {
  while (const std::optional<std::size_t> event = cover.worst_event()) {
    cover.add(*cover.best_for(*event));
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (cover.chosen()[i] && cover.is_redundant(i)) {
      cover.remove(i);
    }
  }
}

class BranchAndBound {
 public:
  BranchAndBound(const std::vector<Absence>& candidates, const Demands& demands, const Cover& first)
      : candidates_(candidates),
        cover_(candidates, demands),
        to_be_had_(std::vector<std::int64_t>(demands.size(), 0)),
        best_(first.chosen()),
        best_bytes_(first.bytes()) {
    for (const Absence& each : candidates) {
      add(to_be_had_, each, signed_bytes(each.bytes));
    }
  }

  std::vector<bool> run() {
    search();
    return best_;
  }
  std::uint64_t visits() const { return cover_.visits() + to_be_had_.visits(); }

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
    const std::int64_t least = cover_.left(*event);
    if (cover_.bytes() + static_cast<std::uint64_t>(least) >= best_bytes_ || to_be_had_.at(*event) < least) {
      return;
    }
    branch(*event);
  }

  // For each candidate that could be away at the event, tries the solutions that contain it and none of the
  // candidates tried before it.
  void branch(std::size_t event) {
    std::vector<std::size_t> tried;
    std::optional<std::size_t> next = cover_.next_open(event, 0);
    for (; next && nodes_ <= kMostNodes; next = cover_.next_open(event, *next + 1)) {
      const Absence& candidate = candidates_[*next];
      add(to_be_had_, candidate, -signed_bytes(candidate.bytes));
      cover_.add(*next);
      search();
      cover_.remove(*next);
      cover_.exclude(*next);
      tried.push_back(*next);
    }
    for (const std::size_t i : tried) {
      add(to_be_had_, candidates_[i], signed_bytes(candidates_[i].bytes));
      cover_.include(i);
    }
  }

  const std::vector<Absence>& candidates_;
  Cover cover_;
  RangeMax to_be_had_;  // by event: bytes of the candidates that are away and neither chosen nor excluded
  std::vector<bool> best_;
  std::uint64_t best_bytes_;
  std::uint64_t nodes_ = 0;
};

std::vector<bool> all_that_lessen(const std::vector<Absence>& candidates, const Demands& demands) {
  std::vector<std::size_t> positive(demands.size() + 1, 0);  // number of positive demands before each event
  for (std::size_t event = 0; event < demands.size(); ++event) {
    positive[event + 1] = positive[event] + (demands[event] > 0 ? 1 : 0);
  }
  std::vector<bool> chosen;
  chosen.reserve(candidates.size());
  for (const Absence& each : candidates) {
    chosen.push_back(std::ranges::any_of(each.stretches, [&positive](const Stretch& stretch) {
      return positive[stretch.end] > positive[stretch.begin];
    }));
  }
  return chosen;
}

// Candidates, and which of them leave.
struct Choice {
  StepLimits limits;
  std::vector<Absence> candidates;
  std::vector<bool> chosen;
  std::uint64_t visits = 0;
};

Choice choose_all(const StepRecord& step, const StepLimits& limits) {
  std::vector<Absence> all = absences_of(step, limits.flight_bytes);
  std::vector<bool> chosen(all.size(), true);
  return {.limits = limits, .candidates = std::move(all), .chosen = std::move(chosen)};
}

// Returns the cheapest choice; absent if the budget cannot be kept with these windows.
std::optional<Choice> choose_cheapest(const StepRecord& step, const StepLimits& limits) {
  std::vector<Absence> candidates = in_order_of_choice(absences_of(step, limits.flight_bytes));
  const Demands demands = demands_of(step, limits);
  if (!is_coverable(candidates, demands)) {
    return std::nullopt;
  }
  Cover greedy(candidates, demands);
  cover_greedily(candidates, greedy);
  BranchAndBound search(candidates, demands, greedy);
  std::vector<bool> chosen = search.run();
  const std::uint64_t visits = greedy.visits() + search.visits();
  return Choice{
      .limits = limits, .candidates = std::move(candidates), .chosen = std::move(chosen), .visits = visits};
}

// A window that is halved repeatedly. It starts no wider than all tensors together, since a wider window
// changes nothing.
class Window {
 public:
  Window(std::uint64_t allowed, std::uint64_t step_bytes, std::uint64_t two_largest)
      : bytes_(std::min(allowed, step_bytes)), narrowest_(std::min(bytes_, two_largest) / kNarrowestWindow) {}

  std::uint64_t bytes() const { return bytes_; }
  // Returns whether the window was wider than its minimum.
  bool halve() {
    const std::uint64_t before = std::exchange(bytes_, std::max(bytes_ / 2, narrowest_));
    return bytes_ < before;
  }

 private:
  std::uint64_t bytes_;
  std::uint64_t narrowest_;
};

std::uint64_t bytes_of(const StepRecord& step) {
  std::uint64_t bytes = 0;
  for (const StepTensor& tensor : step.tensors) {
    bytes += tensor.bytes;
  }
  return bytes;
}

Choice choose_for_budget(const StepRecord& step, const StepLimits& limits) {
  const std::uint64_t step_bytes = bytes_of(step);
  const std::uint64_t two_largest = two_largest_bytes(step);
  Window ahead(limits.ahead_bytes, step_bytes, two_largest);
  Window flight(limits.flight_bytes, step_bytes, two_largest);
  bool is_narrower = true;
  while (is_narrower) {
    const StepLimits with_windows{
        .budget_bytes = limits.budget_bytes, .ahead_bytes = ahead.bytes(), .flight_bytes = flight.bytes()};
    if (std::optional<Choice> choice = choose_cheapest(step, with_windows)) {
      return *std::move(choice);
    }
    is_narrower = ahead.halve();
    is_narrower = flight.halve() || is_narrower;
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
    // The flight window is bounded, since a tensor can leave only if its source is released before it is
    // read: with a wider window, sources are released later.
    return choose_all(step, {.ahead_bytes = limits.ahead_bytes,
                             .flight_bytes = std::min(limits.flight_bytes, two_largest_bytes(step))});
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
  plan.host_blocks = host_blocks_of(step, plan.leaves, limits.host_bytes);
  plan.visits = choice.visits + schedule.visits;
  return plan;
}

bool is_same_course(const StepPlan& a, const StepPlan& b) {
  return a.leaves == b.leaves && a.reads == b.reads && a.ahead_bytes == b.ahead_bytes &&
         a.flight_bytes == b.flight_bytes;
}

HostBlockCounts host_blocks_of(const StepRecord& step, const std::vector<bool>& leaves,
                               std::uint64_t host_bytes) {
  // The events after which blocks are free again, the next one first.
  using Ends = std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>>;
  HostBlockCounts needed;
  std::map<std::uint64_t, Ends> in_use;  // by size
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const std::uint32_t tensor = step.events[i].tensor;
    if (step.events[i].kind == StepEvent::Kind::kRead || !leaves[tensor]) {
      continue;
    }
    const std::uint64_t size = host_block_bytes(step.tensors[tensor].bytes);
    Ends& ends = in_use[size];
    while (!ends.empty() && ends.top() <= i) {
      ends.pop();
    }
    const auto found = needed.find(size);
    if (found == needed.end() || found->second == ends.size()) {
      if (size > host_bytes || bytes > host_bytes - size) {
        continue;
      }
      bytes += size;
      ++needed[size];
    }
    ends.push(step.tensors[tensor].dropped_after);
  }
  return needed;
}

}  // namespace vdnn::stash
