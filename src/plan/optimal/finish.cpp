#include "src/plan/optimal/finish.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/plan/optimal/arrangement.h"

namespace vdnn::optimal {

namespace {

// Each forecast takes about as long as a step of the executor on `sim`.
constexpr int kMostForecasts = 200;

// An op that may use a faster algorithm.
struct Slow {
  OpId op = 0;
  std::vector<std::uint32_t> faster;  // algorithms whose workspaces have a place, the fastest first
  double lost_seconds = 0;            // by which the first of these algorithms is faster
};

class Finisher {
 public:
  Finisher(const Problem& problem, Contest& contest, Placements& placements)
      : problem_(problem),
        contest_(contest),
        placements_(placements),
        known_(*contest.best()),
        seconds_(contest.best_seconds()) {
    const std::uint64_t device = contest.budgets().device_bytes;
    most_ = device - std::min(device, problem.persistent_bytes());
  }

  void run() {
    // A change may delay a copy or end a delay, and so make another change worthwhile.
    while (forecasts_ < kMostForecasts && speed_up(slow_ops())) {
    }
    move_closer();
  }

 private:
  // The ops that may use faster algorithms, in order of the time that they lose, longest first.
  std::vector<Slow> slow_ops() const {
    const std::vector<std::uint64_t> places =
        largest_places(known_.schedule, problem_.costs().alignment_bytes, most_);
    std::vector<Slow> result;
    for (OpId op = 0; op < problem_.slots(); ++op) {
      const double now = problem_.costs().op_seconds[op][known_.plan.algorithms[op]];
      Slow slow{.op = op};
      for (const Choice& choice : problem_.choices(op)) {
        if (choice.seconds < now && choice.workspace_bytes <= places[op]) {
          slow.lost_seconds = std::max(slow.lost_seconds, now - choice.seconds);
          slow.faster.push_back(choice.algorithm);
        }
      }
      if (!slow.faster.empty()) {
        result.push_back(std::move(slow));
      }
    }
    std::ranges::stable_sort(result,
                             [](const Slow& a, const Slow& b) { return a.lost_seconds > b.lost_seconds; });
    return result;
  }

  // Changes all of the ops at once. If that does not make the step shorter, changes each half of them.
  // Returns whether the step became shorter.
  bool speed_up(std::span<const Slow> slow) {
    if (slow.empty() || forecasts_ >= kMostForecasts) {
      return false;
    }
    const std::size_t ways = slow.size() == 1 ? slow.front().faster.size() : 1;
    for (std::size_t way = 0; way < ways; ++way) {
      Plan plan = known_.plan;
      for (const Slow& each : slow) {
        plan.algorithms[each.op] = each.faster[way];
      }
      if (become_faster(std::move(plan))) {
        return true;
      }
    }
    if (slow.size() == 1) {
      return false;
    }
    const bool first = speed_up(slow.first(slow.size() / 2));
    return speed_up(slow.subspan(slow.size() / 2)) || first;
  }

  bool become_faster(Plan plan) {
    std::optional<Schedule> schedule = arrange_as_before(problem_, plan, known_.schedule, placements_, most_);
    if (!schedule) {
      return false;
    }
    PlannedSchedule next{.plan = std::move(plan), .schedule = std::move(*schedule)};
    ++forecasts_;
    const double now = contest_.enter(next);
    if (now >= seconds_) {
      return false;
    }
    known_ = std::move(next);
    seconds_ = now;
    return true;
  }

  // Tries to leave the places of offloaded inputs free for the next step's inputs, and not to.
  void move_closer() {
    const Schedule& now = known_.schedule;
    const std::uint64_t goal = close_bytes(lifetimes(now), problem_.costs().alignment_bytes);
    if (now.arena_bytes <= goal) {
      return;
    }
    for (const OpId next_load : {problem_.load_slot(), static_cast<OpId>(problem_.slots())}) {
      PlannedSchedule closer{.plan = known_.plan};
      closer.schedule = arrange(problem_, closer.plan, next_load, goal, {}, placements_, most_);
      contest_.enter(closer);
    }
  }

  const Problem& problem_;
  Contest& contest_;
  Placements& placements_;
  std::uint64_t most_ = 0;  // bytes for all that is not persistent
  PlannedSchedule known_;
  double seconds_ = 0;  // of the step of known_
  int forecasts_ = 0;
};

}  // namespace

void finish(const Problem& problem, Contest& contest, Placements& placements) {
  if (contest.best() && contest.best()->schedule.arena_bytes > 0) {
    Finisher(problem, contest, placements).run();
  }
}

}  // namespace vdnn::optimal
