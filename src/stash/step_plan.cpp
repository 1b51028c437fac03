#include "src/stash/step_plan.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace vdnn::stash {

namespace {

// A tensor that may leave: away at events [begin, end).
struct Candidate {
  std::uint32_t tensor = 0;
  std::uint64_t bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;

  bool is_away_at(std::size_t event) const { return begin <= event && event < end; }
};

// By tensor: the event of its first read; where it is never read, the first event after its drop.
std::vector<std::size_t> ends_of_absence(const StepRecord& step) {
  std::vector<std::size_t> ends;
  for (const StepTensor& tensor : step.tensors) {
    ends.push_back(std::min(tensor.dropped_after, step.events.size()));
  }
  for (std::size_t i = step.events.size(); i-- > 0;) {
    if (step.events[i].kind == StepEvent::Kind::kRead) {
      ends[step.events[i].tensor] = i;
    }
  }
  return ends;
}

// After the save at `event`: the first event at which its tensor has been released.
std::size_t release_of(const StepRecord& step, std::size_t event, std::uint64_t flight_bytes) {
  std::uint64_t saved = 0;
  for (; event < step.events.size(); ++event) {
    const bool is_save = step.events[event].kind == StepEvent::Kind::kSave;
    saved += is_save ? step.tensors[step.events[event].tensor].bytes : 0;
    if (saved > flight_bytes) {
      return event + 1;
    }
  }
  return event;
}

std::vector<Candidate> candidates_of(const StepRecord& step, std::uint64_t flight_bytes) {
  const std::vector<std::size_t> ends = ends_of_absence(step);
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const std::uint32_t tensor = step.events[i].tensor;
    if (step.events[i].kind == StepEvent::Kind::kRead || step.tensors[tensor].stays) {
      continue;
    }
    const std::size_t begin = std::max(release_of(step, i, flight_bytes), step.tensors[tensor].held_until);
    if (begin < ends[tensor]) {
      all.push_back(
          {.tensor = tensor, .bytes = step.tensors[tensor].bytes, .begin = begin, .end = ends[tensor]});
    }
  }
  return all;
}

std::uint64_t peak_of(const StepRecord& step) {
  std::uint64_t peak = 0;
  for (const StepEvent& event : step.events) {
    peak = std::max(peak, event.in_use_bytes);
  }
  return peak;
}

using Demands = std::vector<std::int64_t>;  // by event: bytes that have to be away, if positive

Demands demands_of(const StepRecord& step, const StepLimits& limits) {
  Demands demands;
  bool is_reading = false;
  for (const StepEvent& event : step.events) {
    is_reading = is_reading || event.kind == StepEvent::Kind::kRead;
    const std::uint64_t taken = event.in_use_bytes + (is_reading ? limits.ahead_bytes : 0);
    demands.push_back(static_cast<std::int64_t>(taken) - static_cast<std::int64_t>(limits.budget_bytes));
  }
  return demands;
}

// A set of candidates, with what it leaves to be covered.
class Cover {
 public:
  Cover(const std::vector<Candidate>& candidates, Demands demands)
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
    const Candidate& candidate = candidates_[index];
    for (std::size_t event = candidate.begin; event < candidate.end; ++event) {
      if (left_[event] + static_cast<std::int64_t>(candidate.bytes) > 0) {
        return false;
      }
    }
    return true;
  }

 private:
  void change(std::size_t index, bool chosen) {
    const Candidate& candidate = candidates_[index];
    const auto bytes = static_cast<std::int64_t>(candidate.bytes);
    for (std::size_t event = candidate.begin; event < candidate.end; ++event) {
      left_[event] += chosen ? -bytes : bytes;
    }
    bytes_ = chosen ? bytes_ + candidate.bytes : bytes_ - candidate.bytes;
    chosen_[index] = chosen;
  }

  const std::vector<Candidate>& candidates_;
  Demands left_;
  std::vector<bool> chosen_;
  std::uint64_t bytes_ = 0;
};

// The larger first; among equals the one that is away longer, which has more time to come back.
std::vector<Candidate> in_order_of_choice(std::vector<Candidate> candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::pair(a.bytes, a.end - a.begin) > std::pair(b.bytes, b.end - b.begin);
  });
  return candidates;
}

// The smallest that covers the demand alone, the longest away among equals; where there is none, the largest.
std::optional<std::size_t> best_for(std::size_t event, const std::vector<Candidate>& candidates,
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
bool cover_greedily(const std::vector<Candidate>& candidates, Cover& cover) {
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
  BranchAndBound(const std::vector<Candidate>& candidates, Demands demands, const Cover& first)
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

  const std::vector<Candidate>& candidates_;
  Cover cover_;
  std::vector<bool> excluded_;
  std::vector<bool> best_;
  std::uint64_t best_bytes_;
  std::uint64_t nodes_ = 0;
};

std::vector<bool> all_that_lessen(const std::vector<Candidate>& candidates, const Demands& demands) {
  std::vector<bool> chosen;
  for (const Candidate& each : candidates) {
    bool lessens = false;
    for (std::size_t event = each.begin; event < each.end; ++event) {
      lessens = lessens || demands[event] > 0;
    }
    chosen.push_back(lessens);
  }
  return chosen;
}

std::vector<bool> cheapest(const std::vector<Candidate>& candidates, const Demands& demands) {
  Cover greedy(candidates, demands);
  if (!cover_greedily(candidates, greedy)) {
    return all_that_lessen(candidates, demands);
  }
  return BranchAndBound(candidates, demands, greedy).run();
}

}  // namespace

std::vector<bool> choose_leaving(const StepRecord& step, const StepLimits& limits) {
  std::vector<bool> leaves(step.tensors.size(), false);
  const std::vector<Candidate> candidates = in_order_of_choice(candidates_of(step, limits.flight_bytes));
  if (limits.budget_bytes > 0 && peak_of(step) <= limits.budget_bytes) {
    return leaves;
  }
  const std::vector<bool> chosen = limits.budget_bytes == 0 ? std::vector<bool>(candidates.size(), true)
                                                            : cheapest(candidates, demands_of(step, limits));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    leaves[candidates[i].tensor] = chosen[i];
  }
  return leaves;
}

std::uint64_t planned_peak(const StepRecord& step, const StepLimits& limits,
                           const std::vector<bool>& leaves) {
  if (std::ranges::find(leaves, true) == leaves.end()) {
    return peak_of(step);
  }
  const std::vector<Candidate> candidates = candidates_of(step, limits.flight_bytes);
  Cover plan(candidates, demands_of(step, {.ahead_bytes = limits.ahead_bytes}));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (leaves[candidates[i].tensor]) {
      plan.add(i);
    }
  }
  const std::optional<std::size_t> highest = plan.worst_event();
  return highest ? static_cast<std::uint64_t>(plan.left(*highest)) : 0;
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
