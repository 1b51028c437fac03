#include "src/plan/optimal/step_timer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace vdnn::optimal {

namespace {

constexpr double kTooLong = std::numeric_limits<double>::infinity();
// Safety margin for prefetches, as a fraction of the copy time.
constexpr double kLead = 0.1;

// Adds an item to a heap whose smallest item is on top.
template <class Item>
void push(std::vector<Item>& heap, Item item) {
  heap.push_back(item);
  std::ranges::push_heap(heap, std::ranges::greater());
}
template <class Item>
void pop(std::vector<Item>& heap) {
  std::ranges::pop_heap(heap, std::ranges::greater());
  heap.pop_back();
}

}  // namespace

// The link from the device to the host, which runs one copy after the other.
class StepTimer::Outbound {
 public:
  // `copied` receives, by gap, the time at which the value is on the host.
  Outbound(const Problem& problem, const std::vector<CopyToHost>& copies, std::vector<double>& copied)
      : problem_(problem), copies_(copies), copied_(copied) {}

  // Starts the copies of the values that the slot's op has made, and of the inputs of which it is the first
  // reader.
  void leave(OpId slot, double op_start, double op_end) {
    for (; next_ < copies_.size() && copies_[next_].slot <= slot; ++next_) {
      const CopyToHost& copy = copies_[next_];
      const Gap& gap = problem_.gaps()[copy.gap];
      free_ = std::max(free_, copy.at_start ? op_start : op_end) + gap.offload_seconds;
      std::fill(copied_.begin() + copy.gap, copied_.begin() + problem_.gaps_of(gap.value).second, free_);
    }
  }
  // The time in seconds at which all started copies are done.
  double free() const { return free_; }

 private:
  const Problem& problem_;
  const std::vector<CopyToHost>& copies_;
  std::vector<double>& copied_;
  std::size_t next_ = 0;
  double free_ = 0;
};

StepTimer::StepTimer(const Problem& problem)
    : problem_(problem),
      by_first_after_(problem.gaps_by(&Gap::first_after)),
      by_last_before_(problem.gaps_by(&Gap::last_before)) {}

const Timing& StepTimer::time(const UntimedStep& step) {
  timing_.seconds = kTooLong;
  timing_.held_up.clear();
  find_copies(step);
  const std::vector<double>& seconds = step.algorithms.seconds;
  const double all_seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  if (all_seconds > step.longest) {
    return timing_;
  }
  const NextLoad load = hide_next_load(step);
  timing_.next_load = load.slot < problem_.slots() ? load.slot : problem_.load_slot();
  if (const Departures& departures = depart(step, all_seconds, load); departures.in_time) {
    place_prefetches(step, departures);
    timing_.seconds = run(step, all_seconds, load, departures);
  }
  return timing_;
}

// Finds when each offloaded value is copied. A value is copied once, as soon as it is made. But if it is
// dropped and recomputed before its first offload, it is copied as soon as it is recomputed.
void StepTimer::find_copies(const UntimedStep& step) {
  const std::vector<Gap>& gaps = problem_.gaps();
  timing_.copies.clear();
  timing_.host_bytes = 0;
  offloaded_.clear();
  for (const std::uint32_t gap : by_last_before_) {
    if (step.fates[gap] == Fate::kOffload) {
      offloaded_.push_back(gap);
    }
  }
  for (const std::uint32_t gap : offloaded_) {
    const ValueId value = gaps[gap].value;
    OpId made = gaps[gap].made;
    bool on_host = false;
    for (std::uint32_t earlier = problem_.gaps_of(value).first; earlier < gap; ++earlier) {
      on_host = on_host || step.fates[earlier] == Fate::kOffload;
      made = is_recomputed(step.fates[earlier]) ? step.recomputations.back[earlier] : made;
    }
    if (!on_host) {
      const bool is_loaded = problem_.tape().producer(value) == kNone;
      timing_.copies.push_back({.slot = made, .gap = gap, .at_start = is_loaded});
      timing_.host_bytes += problem_.tape().value(value).bytes;
    }
  }
  std::ranges::stable_sort(timing_.copies, {},
                           [](const CopyToHost& copy) { return std::pair(copy.slot, copy.gap); });
}

// Returns when the next step's inputs can be loaded. If an input is in use until the end of its step, its
// place is free only then. If the input is offloaded, its place is free earlier. The load can then run at the
// same time as the ops after the last slot that needs the memory.
StepTimer::NextLoad StepTimer::hide_next_load(const UntimedStep& step) const {
  NextLoad load{.slot = static_cast<OpId>(problem_.slots()), .seconds = problem_.load_seconds()};
  for (const ValueId input : problem_.tape().inputs()) {
    const auto [begin, end] = problem_.gaps_of(input);
    for (std::uint32_t gap = begin; gap < end; ++gap) {
      if (step.fates[gap] == Fate::kOffload) {
        load.bytes += problem_.gaps()[gap].freed_bytes;
        break;
      }
    }
  }
  while (load.bytes > 0 && load.slot > 0 && load.seconds > 0 &&
         step.algorithms.bytes[load.slot - 1] + load.bytes <= step.bytes) {
    --load.slot;
    load.seconds = std::max(0.0, load.seconds - step.algorithms.seconds[load.slot]);
  }
  return load;
}

// Computes when offloads run, and when the memory of offloaded values is released.
const StepTimer::Departures& StepTimer::depart(const UntimedStep& step, double all_seconds,
                                               const NextLoad& load) {
  const std::vector<Gap>& gaps = problem_.gaps();
  const std::size_t slots = problem_.slots();
  departures_.in_time = false;
  departures_.bytes.resize(slots);
  departures_.start.resize(slots);
  departures_.copied.assign(gaps.size(), 0);
  departures_.forced.assign(gaps.size(), false);
  timing_.release.assign(gaps.size(), kNone);
  const std::vector<double>& copied = departures_.copied;
  lingering_.clear();
  due_.clear();  // offloads by the slot for which the value is fetched; they must be done before that
  std::uint64_t lingering_bytes = 0;
  std::size_t next_done = 0;
  double clock = load.seconds;
  double rest = all_seconds;
  Outbound outbound(problem_, timing_.copies, departures_.copied);
  for (OpId slot = 0; slot < slots; ++slot) {
    for (; next_done < offloaded_.size() && gaps[offloaded_[next_done]].last_before < slot; ++next_done) {
      const std::uint32_t gap = offloaded_[next_done];
      push(lingering_, std::pair(copied[gap], gap));
      push(due_, std::pair(step.recomputations.back[gap], gap));
      lingering_bytes += gaps[gap].freed_bytes;
    }
    for (; !due_.empty() && due_.front().first <= slot + 1; pop(due_)) {
      const std::uint32_t gap = due_.front().second;
      if (copied[gap] > clock) {
        departures_.forced[gap] = true;
        clock = copied[gap];
      }
    }
    const std::uint64_t needed = step.algorithms.bytes[slot] + (slot >= load.slot ? load.bytes : 0);
    while (!lingering_.empty()) {
      const auto [done, gap] = lingering_.front();
      if (done > clock && needed + lingering_bytes <= step.bytes) {
        break;
      }
      if (done > clock) {
        departures_.forced[gap] = true;
        timing_.held_up.push_back(slot);
        clock = done;
      }
      timing_.release[gap] = slot - 1;
      lingering_bytes -= gaps[gap].freed_bytes;
      pop(lingering_);
    }
    if (clock + rest > step.longest) {
      return departures_;
    }
    departures_.bytes[slot] = needed + lingering_bytes;
    departures_.start[slot] = clock;
    const double start = clock;
    clock += step.algorithms.seconds[slot];
    rest -= step.algorithms.seconds[slot];
    outbound.leave(slot, start, clock);
  }
  departures_.in_time = true;
  return departures_;
}

void StepTimer::order_fetches(const UntimedStep& step) {
  fetched_.clear();
  for (const std::uint32_t gap : by_first_after_) {
    if (step.fates[gap] == Fate::kOffload) {
      fetched_.push_back(gap);
    }
  }
  std::ranges::stable_sort(fetched_, {}, [&](std::uint32_t gap) {
    return std::pair(step.recomputations.back[gap], !step.recomputations.read_early[gap]);
  });
}

void StepTimer::place_prefetches(const UntimedStep& step, const Departures& departures) {
  const std::vector<Gap>& gaps = problem_.gaps();
  const std::vector<OpId>& back = step.recomputations.back;
  const std::vector<double>& start = departures.start;
  order_fetches(step);
  timing_.prefetch.assign(gaps.size(), kNone);
  double next_begin = kTooLong;
  for (auto each = fetched_.rbegin(); each != fetched_.rend(); ++each) {
    const std::uint32_t gap = *each;
    const double done = std::min(next_begin, start[back[gap]]);
    next_begin = done - (1 + kLead) * gaps[gap].prefetch_seconds;
    const auto after = std::ranges::upper_bound(start, next_begin);
    const auto slot = after == start.begin() ? 0 : static_cast<OpId>(after - start.begin() - 1);
    timing_.prefetch[gap] = std::min(back[gap], std::max(slot, timing_.release[gap] + 1));
  }
  in_use_.resize(problem_.slots());
  std::ranges::transform(departures.bytes, in_use_.begin(),
                         [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); });
  tree_.assign(in_use_);
  OpId previous = 0;
  for (const std::uint32_t gap : fetched_) {
    OpId slot = std::max(timing_.prefetch[gap], previous);
    const auto bytes = static_cast<std::int64_t>(gaps[gap].bytes);
    const std::int64_t most = static_cast<std::int64_t>(step.bytes) - bytes;
    if (const auto full = tree_.last_above(slot, back[gap], most)) {
      slot = static_cast<OpId>(*full) + 1;
      timing_.held_up.push_back(static_cast<OpId>(*full));
    }
    tree_.raise(slot, back[gap], bytes);
    timing_.prefetch[gap] = slot;
    previous = slot;
  }
}

// The seconds of a copy that starts at `begin` while the other direction is busy until `other_until`.
double StepTimer::copy_beside(double begin, double seconds, double seconds_both_ways,
                              double other_until) const {
  if (other_until <= begin) {
    return seconds;
  }
  const double both = std::min(other_until - begin, seconds_both_ways);
  return both + seconds * (1 - both / seconds_both_ways);
}

// Simulates the step with both directions of the link. Returns the step's seconds.
double StepTimer::run(const UntimedStep& step, double all_seconds, const NextLoad& load,
                      const Departures& departures) {
  const std::vector<Gap>& gaps = problem_.gaps();
  const PlanCosts& costs = problem_.costs();
  const Recomputations& recomputations = step.recomputations;
  const double slower = costs.host_to_device / costs.host_to_device_both_ways;
  // A copy to the host delays an op only if the memory of its value was needed before the copy was done.
  // Sorts these values by release.
  held_.clear();
  for (const std::uint32_t gap : offloaded_) {
    if (departures.forced[gap]) {
      held_.push_back(gap);
    }
  }
  std::ranges::sort(held_, {}, [&](std::uint32_t gap) { return std::pair(timing_.release[gap], gap); });
  copied_.resize(gaps.size());
  arrival_.resize(gaps.size());
  double clock = load.seconds;
  double rest = all_seconds;
  double inbound_free = clock;
  Outbound outbound(problem_, timing_.copies, copied_);
  std::size_t next_held = 0;
  std::size_t next_fetched = 0;
  std::size_t next_back = 0;
  for (OpId slot = 0; slot < problem_.slots(); ++slot) {
    for (; next_held < held_.size() && timing_.release[held_[next_held]] < slot; ++next_held) {
      clock = std::max(clock, copied_[held_[next_held]]);
    }
    for (; next_fetched < fetched_.size() && timing_.prefetch[fetched_[next_fetched]] == slot;
         ++next_fetched) {
      const std::uint32_t gap = fetched_[next_fetched];
      const double seconds = gaps[gap].prefetch_seconds;
      const double begin = std::max({inbound_free, clock, copied_[gap]});
      inbound_free = begin + copy_beside(begin, seconds, slower * seconds, outbound.free());
      arrival_[gap] = inbound_free;
    }
    for (; next_back < fetched_.size() && recomputations.back[fetched_[next_back]] == slot; ++next_back) {
      const std::uint32_t gap = fetched_[next_back];
      const double own = problem_.choices(slot)[step.algorithms.choice[slot]].seconds;
      const double recomputing = recomputations.read_early[gap] ? 0 : step.algorithms.seconds[slot] - own;
      clock = std::max(clock, arrival_[gap] - recomputing);
    }
    if (clock + rest > step.longest) {
      return kTooLong;
    }
    const double start = clock;
    clock += step.algorithms.seconds[slot];
    rest -= step.algorithms.seconds[slot];
    outbound.leave(slot, start, clock);
  }
  return clock;
}

}  // namespace vdnn::optimal
