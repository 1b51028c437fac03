#include "src/plan/optimal/finish.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/plan/optimal/arrangement.h"

namespace vdnn::optimal {

namespace {

// No more changes of algorithms are tried after this many forecasts.
constexpr int kMostForecasts = 200;

// An op that has faster algorithms with a place for their workspaces.
struct SlowOp {
  OpId op = 0;
  std::vector<std::uint32_t> faster;  // algorithms, the fastest first
  double lost_seconds = 0;            // by which the first of them is faster, for all launches

  bool operator==(const SlowOp&) const = default;
};
using Group = std::vector<SlowOp>;

// `places`: the result of largest_places(). The ops with the most lost seconds come first.
Group slow_ops(const Problem& problem, const PlannedSchedule& known, std::span<const std::uint64_t> places) {
  std::vector<int> launches(problem.slots(), 0);
  for (const Instruction& instruction : known.schedule.instructions) {
    if (is_launch(instruction.kind)) {
      ++launches[instruction.op];
    }
  }
  Group result;
  for (OpId op = 0; op < problem.slots(); ++op) {
    const double now = problem.costs().op_seconds[op][known.plan.algorithms[op]];
    SlowOp slow{.op = op};
    for (const Choice& choice : problem.choices(op)) {
      if (choice.seconds < now && choice.workspace_bytes <= places[op]) {
        slow.lost_seconds = slow.faster.empty() ? launches[op] * (now - choice.seconds) : slow.lost_seconds;
        slow.faster.push_back(choice.algorithm);
      }
    }
    if (!slow.faster.empty()) {
      result.push_back(std::move(slow));
    }
  }
  const auto gain = [](const SlowOp& slow) { return -slow.lost_seconds; };
  std::ranges::stable_sort(result, {}, gain);
  return result;
}

class Finisher {
 public:
  Finisher(const Problem& problem, const Best& best, Contest& contest, Placements& placements)
      : problem_(problem),
        contest_(contest),
        placements_(placements),
        most_(problem.room_beside_persistent(contest.budgets().device_bytes)),
        known_(*best.plan),
        seconds_(best.rank.first),
        found_(known_.plan.algorithms) {}

  // Whether the plan would be the fastest if its ops were as fast as the places permit. A plan that gains
  // more, since a change frees a place or ends a delay, is overlooked.
  bool may_win(const Group& slow) const {
    const double gain = std::transform_reduce(slow.begin(), slow.end(), 0.0, std::plus(),
                                              [](const SlowOp& op) { return op.lost_seconds; });
    return seconds_ - gain < contest_.best_seconds();
  }

  // A change may delay a copy, end a delay or free a place, and so make another change worthwhile.
  void run() {
    do {
      while (speed_up(slow_ops(problem_, known_, places()))) {
      }
    } while (take_back() || move_closer());
  }

 private:
  std::vector<std::uint64_t> places() const {
    return largest_places(known_.schedule, problem_.costs().alignment_bytes, most_);
  }

  // Changes all of the ops at once. Splits a group whose change does not make the step shorter, and tries
  // larger groups first. The places stay free meanwhile, since only one workspace is alive at a time. Returns
  // whether the step became shorter.
  bool speed_up(Group all) {
    std::deque<Group> groups;
    if (!all.empty()) {
      groups.push_back(std::move(all));
    }
    bool faster = false;
    for (; !groups.empty() && forecasts_ < kMostForecasts; groups.pop_front()) {
      Group& group = groups.front();
      if (group.size() == 1 ? speed_up_one(group.front()) : becomes_faster(with_fastest(group))) {
        faster = true;
      } else if (group.size() > 1) {
        const auto half = group.begin() + static_cast<std::ptrdiff_t>(group.size() / 2);
        Group second(half, group.end());
        group.erase(half, group.end());
        groups.push_back(group);
        groups.push_back(std::move(second));
      }
    }
    return faster;
  }

  // A smaller workspace may have a place in which its op does not wait.
  bool speed_up_one(const SlowOp& slow) {
    return std::ranges::any_of(slow.faster, [&](std::uint32_t algorithm) {
      return becomes_faster(with_algorithm(slow.op, algorithm));
    });
  }

  Plan with_fastest(const Group& group) const {
    Plan plan = known_.plan;
    for (const SlowOp& slow : group) {
      plan.algorithms[slow.op] = slow.faster.front();
    }
    return plan;
  }

  // The step of a group may be shorter although one of its ops delays a copy, for example the load of the
  // next input. Such an op gets back the algorithm that the search found. Returns whether the step became
  // shorter.
  bool take_back() {
    bool faster = false;
    for (OpId op = 0; op < problem_.slots() && forecasts_ < kMostForecasts; ++op) {
      if (known_.plan.algorithms[op] != found_[op]) {
        faster = becomes_faster(with_algorithm(op, found_[op])) || faster;
      }
    }
    return faster;
  }

  Plan with_algorithm(OpId op, std::uint32_t algorithm) const {
    Plan plan = known_.plan;
    plan.algorithms[op] = algorithm;
    return plan;
  }

  // Keeps the plan if the step is shorter with it.
  bool becomes_faster(Plan plan) {
    ++forecasts_;
    std::optional<Schedule> schedule = arrange_as_before(problem_, plan, known_.schedule, placements_, most_);
    if (!schedule) {
      return false;
    }
    PlannedSchedule next{.plan = std::move(plan), .schedule = std::move(*schedule)};
    const double now = contest_.enter(next);
    if (now >= seconds_) {
      return false;
    }
    known_ = std::move(next);
    seconds_ = now;
    return true;
  }

  // Tries to leave the places of offloaded inputs free for the next step's inputs, and not to. Returns
  // whether the plan has closer addresses now.
  bool move_closer() {
    const std::uint64_t reserved = known_.schedule.arena_bytes;
    const std::uint64_t goal =
        most_reserved_bytes(lifetimes(known_.schedule), problem_.costs().alignment_bytes);
    if (reserved <= goal) {
      return false;
    }
    const OpId load = problem_.load_slot();
    const auto never = static_cast<OpId>(problem_.slots());
    for (const NextInputs next :
         {NextInputs{load, true}, NextInputs{load, false}, NextInputs{never, false}}) {
      PlannedSchedule closer{.plan = known_.plan};
      closer.schedule = arrange(problem_, closer.plan, next, goal, {}, placements_, most_);
      if (closer.schedule.arena_bytes >= reserved) {
        continue;
      }
      if (const double now = contest_.enter(closer); now <= seconds_) {
        known_ = std::move(closer);
        seconds_ = now;
        return true;
      }
    }
    return false;
  }

  const Problem& problem_;
  Contest& contest_;
  Placements& placements_;
  std::uint64_t most_;  // bytes for all that is not persistent
  PlannedSchedule known_;
  double seconds_;                          // of the step of known_
  const std::vector<std::uint32_t> found_;  // by op: the algorithm that the search found
  int forecasts_ = 0;
};

}  // namespace

void finish(std::span<const Problem* const> problems, Contest& contest, Placements& placements) {
  const double fastest = contest.best_seconds();
  // `shared`: whether the best plan of the next problem is the same, so that the changes with the choices of
  // that problem are known.
  const auto change = [&](std::size_t number, const Best& best, bool shared) {
    if (!best.plan || best.plan->schedule.arena_bytes == 0) {
      return;
    }
    const std::uint64_t most = problems[number]->room_beside_persistent(contest.budgets().device_bytes);
    const std::vector<std::uint64_t> places =
        largest_places(best.plan->schedule, problems[number]->costs().alignment_bytes, most);
    const Group slow = slow_ops(*problems[number], *best.plan, places);
    if (shared && slow == slow_ops(*problems[number + 1], *best.plan, places)) {
      return;
    }
    Finisher finisher(*problems[number], best, contest, placements);
    if (best.rank.first <= fastest || finisher.may_win(slow)) {
      contest.begin_round(number);
      finisher.run();
    }
  };
  const auto is_shared = [&](std::size_t number) {
    return number + 1 < problems.size() && &contest.best_from(number) == &contest.best_from(number + 1);
  };
  std::vector<Best> found;  // by problem
  std::vector<bool> shared;
  for (std::size_t number = 0; number < problems.size(); ++number) {
    found.push_back(contest.best_from(number));
    shared.push_back(is_shared(number));
  }
  for (std::size_t number = problems.size(); number-- > 0;) {
    change(number, found[number], shared[number]);
  }
  // A plan that was changed under a limit may now be the best plan of problems with higher limits.
  for (std::size_t number = problems.size(); number-- > 0;) {
    if (is_shared(number)) {
      change(number, Best(contest.best_from(number)), true);
    }
  }
}

}  // namespace vdnn::optimal
