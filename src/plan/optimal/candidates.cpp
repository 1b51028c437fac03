#include "src/plan/optimal/candidates.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "src/plan/placement.h"
#include "vdnn/size.h"

namespace vdnn::optimal {

namespace {

// The largest number of attempts of consider_with_steps() to find addresses with smaller workspaces.
constexpr int kStepsDown = 3;
// Plans that offload one more value are tried only for problems with at most this many gaps.
constexpr std::size_t kFewGaps = 40;

// If no addresses are found, plans are tried that leave these fractions of the memory free.
constexpr std::array kSlacks{0.03, 0.08};

// If a plan exceeds its memory by more than this fraction, smaller workspaces do not make it fit.
constexpr double kNear = 0.1;

// The algorithms of at most this many ops are replaced one by one: each replacement costs a forecast.
constexpr std::size_t kMostOneByOne = 8;

// An algorithm may replace another if it takes at most this fraction of the other's time.
constexpr double kMuchFaster = 0.5;

// A step that takes longer than the model's by more than this fraction may load the next step's inputs late.
constexpr double kLate = 0.002;
// Places for these inputs are also searched in this fraction more memory.
constexpr double kMoreRoom = 0.01;

// After this many failed attempts to place all buffers of a plan anew, no more are made.
constexpr int kMostFailures = 8;

std::uint64_t with_room(std::uint64_t bytes, const GiveWay& give_way) {
  return bytes + static_cast<std::uint64_t>(static_cast<double>(bytes) * give_way.room);
}

}  // namespace

Candidates::Candidates(const Problem& problem, const Problem& first, const PlanOptions& options,
                       Contest& contest, Placements& placements)
    : problem_(problem),
      first_(first),
      options_(options),
      contest_(contest),
      model_(problem),
      placements_(placements) {}

std::uint64_t Candidates::committed_bytes(std::uint64_t bytes) const {
  return round_up(problem_.persistent_bytes() + bytes, problem_.costs().granule_bytes);
}

void Candidates::consider(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough,
                          Insistence insistence) {
  if (!model_.evaluate(decisions, bytes).feasible()) {
    return;
  }
  if (insistence == Insistence::kToFit && consider_in_least_memory(bytes, enough)) {
    return;
  }
  Schedule schedule = arrange_and_enter(bytes, {}, enough);
  if (insistence == Insistence::kNone || fits(schedule, enough) ||
      (problem_.gaps().size() <= kFewGaps && consider_with_moves(decisions, bytes, enough))) {
    return;
  }
  // consider_with_steps() makes only a few workspaces smaller, so it helps only a plan that nearly fits.
  const bool near =
      static_cast<double>(committed_bytes(schedule.arena_bytes)) <= (1 + kNear) * static_cast<double>(enough);
  if (!(near && consider_with_steps(decisions, std::move(schedule), bytes, enough)) &&
      !consider_with_slack(decisions, bytes, enough)) {
    model_.evaluate(decisions, bytes);
    consider_with_delays(bytes, enough);
  }
}

void Candidates::consider_closer(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  if (!model_.evaluate(decisions, bytes).feasible()) {
    return;
  }
  const Schedule schedule = arranged(bytes, {}, enough).schedule;
  if (const std::uint64_t goal = most_reserved_bytes(lifetimes(schedule), problem_.costs().alignment_bytes);
      schedule.arena_bytes > goal) {
    consider_as_evaluated(goal, enough);
  }
}

void Candidates::consider_without_last_resorts(const Leader& leader, std::uint64_t enough) {
  if (leader.seconds - problem_.lost_to_last_resorts(leader.schedule) >= contest_.best_seconds()) {
    return;
  }
  PlannedSchedule known = leader.schedule;
  bool changed = replace_in_place(known, last_resorts(known.plan), enough);
  if (changed && contest_.enter(known) > leader.expected_seconds()) {
    replace_one_by_one(leader, enough);
  }
  changed = false;
  int failures = 0;
  for (const OpId op : last_resorts(known.plan)) {
    const bool replaced = failures < kMostFailures && rearrange(known, op, enough);
    changed = changed || replaced;
    failures += replaced ? 0 : 1;
  }
  if (changed) {
    contest_.enter(known);
  }
}

// A large workspace may make its op wait for the copy of an earlier value in the same place. So each
// replacement is kept only if it makes the step shorter.
void Candidates::replace_one_by_one(const Leader& leader, std::uint64_t enough) {
  PlannedSchedule known = leader.schedule;
  double seconds = leader.seconds;
  const std::vector<OpId> all = last_resorts(known.plan);
  for (const OpId op : std::span(all).first(std::min(all.size(), kMostOneByOne))) {
    PlannedSchedule next = known;
    if (!replace_in_place(next, {&op, 1}, enough)) {
      continue;
    }
    if (const double now = contest_.enter(next); now < seconds) {
      seconds = now;
      known = std::move(next);
    }
  }
}

double Candidates::lost_to_last_resorts(const Decisions& decisions, std::uint64_t bytes) {
  model_.evaluate(decisions, bytes);
  double seconds = 0;
  for (OpId op = 0; op < problem_.slots(); ++op) {
    seconds += first_.lost_to_last_resort(op, problem_.choices(op)[model_.choice(op)].algorithm);
  }
  return seconds;
}

// The ops that use an algorithm of the last resort, in order of the time that they lose, longest first.
std::vector<OpId> Candidates::last_resorts(const Plan& plan) const {
  std::vector<OpId> result;
  for (OpId op = 0; op < problem_.slots(); ++op) {
    if (problem_.is_last_resort(op, plan.algorithms[op])) {
      result.push_back(op);
    }
  }
  const auto lost = [&](OpId op) { return -problem_.lost_to_last_resort(op, plan.algorithms[op]); };
  std::ranges::stable_sort(result, {}, lost);
  return result;
}

// Replaces the algorithms of `ops` by faster ones while all other buffers keep their offsets. The new
// workspaces do not overlap, since only one workspace is alive at a time.
bool Candidates::replace_in_place(PlannedSchedule& known, std::span<const OpId> ops,
                                  std::uint64_t enough) const {
  const std::uint64_t most = problem_.room_beside_persistent(enough);
  std::map<OpId, std::uint32_t> tried;  // by op: the choice that is tried
  for (const OpId op : ops) {
    if (faster_choices(op, known.plan.algorithms[op]) > 0) {
      tried.emplace(op, 0);
    }
  }
  while (!tried.empty()) {
    Plan plan = known.plan;
    for (const auto& [op, choice] : tried) {
      plan.algorithms[op] = problem_.choices(op)[choice].algorithm;
    }
    const std::vector<OpId> high = ops_without_place(problem_, plan, known.schedule, most);
    if (high.empty()) {
      return adopt(known, std::move(plan), enough);
    }
    for (const OpId op : std::set(high.begin(), high.end())) {  // each op once, even if it is launched again
      const auto mine = tried.find(op);
      if (mine == tried.end()) {
        return false;
      }
      if (++mine->second >= faster_choices(op, known.plan.algorithms[op])) {
        tried.erase(mine);
      }
    }
  }
  return false;
}

// The number of the op's choices that are much faster than the algorithm. They are the first of the op's
// choices.
std::uint32_t Candidates::faster_choices(OpId op, std::uint32_t algorithm) const {
  const double most = kMuchFaster * problem_.costs().op_seconds[op][algorithm];
  const auto is_faster = [most](const Choice& choice) { return choice.seconds <= most; };
  const std::vector<Choice>& all = problem_.choices(op);
  return static_cast<std::uint32_t>(std::ranges::find_if_not(all, is_faster) - all.begin());
}

// Gives the op the smallest workspace with which it is much faster. Places all buffers anew if necessary.
bool Candidates::rearrange(PlannedSchedule& known, OpId op, std::uint64_t enough) const {
  const std::uint32_t faster = faster_choices(op, known.plan.algorithms[op]);
  if (faster == 0) {
    return false;
  }
  Plan plan = known.plan;
  plan.algorithms[op] = problem_.choices(op)[faster - 1].algorithm;
  return adopt(known, std::move(plan), enough);
}

// Replaces `known` by `plan` with addresses. Returns false if no addresses are found.
bool Candidates::adopt(PlannedSchedule& known, Plan plan, std::uint64_t enough) const {
  std::optional<Schedule> schedule =
      arrange_as_before(problem_, plan, known.schedule, placements_, problem_.room_beside_persistent(enough));
  if (!schedule || !fits(*schedule, enough)) {
    return false;
  }
  known = {.plan = std::move(plan), .schedule = std::move(*schedule)};
  return true;
}

// Tries a plan in which results, which are smaller than a granule, give way. Then tries plans that also
// offload one more value, which may have another address when it is back. All these plans are tried, since
// any of them may be the fastest that fits.
bool Candidates::consider_with_moves(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  constexpr GiveWay kResults{.results = true};
  model_.evaluate(decisions, bytes);
  Decisions as_chosen = decisions;  // with fixed algorithms, so that ops do not use the freed memory
  for (OpId op = 0; op < problem_.slots(); ++op) {
    as_chosen.least_choice[op] = static_cast<std::uint8_t>(model_.choice(op));
  }
  bool any_fits = consider_as_evaluated(bytes, enough, kResults);
  for (std::uint32_t gap = 0; gap < decisions.fates.size(); ++gap) {
    Decisions moved = as_chosen;
    moved.fates[gap] = Fate::kOffload;
    if (decisions.fates[gap] == Fate::kKeep && model_.evaluate(moved, bytes).feasible()) {
      any_fits = consider_as_evaluated(bytes, enough, kResults) || any_fits;
    }
  }
  return any_fits;
}

// Tries schedules in which ops use smaller workspaces if their workspaces extend beyond `bytes`. Values do
// not give way. `schedule` is the schedule of the decisions and must not fit. Returns whether one of these
// schedules fits.
bool Candidates::consider_with_steps(Decisions decisions, Schedule schedule, std::uint64_t bytes,
                                     std::uint64_t enough) {
  model_.evaluate(decisions, bytes);
  for (int step = 1; step <= kStepsDown; ++step) {
    bool stepped = false;
    for (const OpId op : ops_too_high(schedule, bytes)) {
      const std::uint32_t choice = model_.choice(op);
      std::uint32_t next = choice;
      for (int each = 0; each < step; ++each) {
        next = problem_.next_smaller(op, next);
      }
      decisions.least_choice[op] = static_cast<std::uint8_t>(next);
      stepped = stepped || next != choice;
    }
    if (!stepped) {
      return false;
    }
    model_.evaluate(decisions, bytes);
    schedule = arrange_and_enter(bytes, {}, enough);
    if (fits(schedule, enough)) {
      return true;
    }
  }
  return false;
}

// Tries plans that leave a part of the memory free at every slot at which ops can run without it.
bool Candidates::consider_with_slack(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  return std::ranges::any_of(kSlacks, [&](double slack) {
    model_.evaluate(decisions, bytes, slack);
    return consider_as_evaluated(bytes, enough);
  });
}

// Arranges and enters the decisions evaluated last. Returns whether their plan fits.
bool Candidates::consider_as_evaluated(std::uint64_t bytes, std::uint64_t enough, GiveWay give_way) {
  return fits(arrange_and_enter(bytes, give_way, enough), enough);
}

// Tries the plans of the decisions evaluated last that need the least memory, however much they delay ops.
// Returns whether one of them fits.
bool Candidates::consider_in_least_memory(std::uint64_t bytes, std::uint64_t enough) {
  const auto least = std::span(kWaysToGive).last(kWaysInLeastMemory);
  return std::ranges::any_of(least, [&](const GiveWay& give_way) {
    const PlannedSchedule candidate = arranged(bytes, give_way, enough);
    enter_if_small(candidate, enough);
    return fits(candidate.schedule, enough);
  });
}

// Tries plans of the decisions evaluated last in which values that do not have to be resident give way. If
// that delays ops, plans in a smaller arena are tried too, since they may be faster.
void Candidates::consider_with_delays(std::uint64_t bytes, std::uint64_t enough) {
  std::uint64_t committed = 0;
  for (const GiveWay& give_way : std::span(kWaysToGive).subspan(1)) {
    // More room is only tried if the budget has it.
    if (give_way.room > 0 && committed_bytes(with_room(bytes, give_way)) > enough) {
      continue;
    }
    // Results have less than a granule, so a plan that is too large by more does not fit if they give way.
    if (give_way.results &&
        committed > std::max(enough, contest_.smallest_peak_bytes()) + problem_.costs().granule_bytes) {
      continue;
    }
    PlannedSchedule candidate = arranged(with_room(bytes, give_way), give_way, enough);
    if (give_way.room > 0 &&
        candidate.schedule.arena_bytes >
            most_reserved_bytes(lifetimes(candidate.schedule), problem_.costs().alignment_bytes)) {
      continue;
    }
    const bool may_give_way = !candidate.plan.transfers.empty();
    committed = committed_bytes(candidate.schedule.arena_bytes);
    enter_if_small(candidate, enough);
    const bool held_up = give_way.copies == GiveWay::Copies::kAll;
    if ((committed <= enough && !held_up) || !may_give_way) {
      return;
    }
  }
}

// The ops whose workspaces extend beyond the goal. If there are none, the ops whose workspaces are alive
// together with buffers that extend beyond the goal.
std::vector<OpId> Candidates::ops_too_high(const Schedule& schedule, std::uint64_t goal) const {
  const std::vector<OpId> op_of = ops_of_workspaces(schedule);
  const std::vector<Lifetime> all = lifetimes(schedule);
  std::vector<OpId> high;
  std::vector<OpId> beside;
  for (const Lifetime& one : all) {
    const Buffer& buffer = schedule.buffers[one.buffer];
    if (*buffer.offset + buffer.bytes <= goal) {
      continue;
    }
    if (op_of[one.buffer] != kNone) {
      high.push_back(op_of[one.buffer]);
      continue;
    }
    for (const Lifetime& other : all) {
      if (op_of[other.buffer] != kNone && other.begin < one.end && one.begin < other.end) {
        beside.push_back(op_of[other.buffer]);
      }
    }
  }
  return high.empty() ? beside : high;
}

// The plan and schedule of the decisions evaluated last. The schedule has waits only if it fits in `enough`
// bytes or has a lower peak than all known plans.
PlannedSchedule Candidates::arranged(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough) {
  return arranged(goal, give_way, enough, {.from = model_.next_load()});
}

PlannedSchedule Candidates::arranged(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough,
                                     NextInputs next) {
  PlannedSchedule candidate;
  candidate.plan.options = options_;
  model_.write(candidate.plan);
  const std::uint64_t most = std::max(enough, contest_.smallest_peak_bytes());
  candidate.schedule = arrange(problem_, candidate.plan, next, goal, give_way, placements_,
                               problem_.room_beside_persistent(most));
  return candidate;
}

// Arranges the decisions evaluated last, and enters their plan if it is small enough. Returns the schedule in
// any case.
Schedule Candidates::arrange_and_enter(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough) {
  PlannedSchedule candidate = arranged(goal, give_way, enough);
  const double seconds = enter_if_small(candidate, enough);
  if (fits(candidate.schedule, enough) && is_late(seconds) && may_load_early(candidate)) {
    consider_early_loads(goal, give_way, enough);
  }
  return std::move(candidate.schedule);
}

// Other buffers may occupy the places of offloaded inputs until the end of the step, although the model loads
// the next step's inputs earlier. Tries plans in which these places are free early.
void Candidates::consider_early_loads(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough) {
  const auto more = static_cast<std::uint64_t>(kMoreRoom * static_cast<double>(goal));
  const std::uint64_t larger = std::max(goal, std::min(goal + more, problem_.room_beside_persistent(enough)));
  const std::array tries{std::pair(problem_.load_slot(), goal), std::pair(model_.next_load(), goal),
                         std::pair(model_.next_load(), larger)};
  for (auto next = tries.begin(); next != tries.end(); ++next) {
    if (std::find(tries.begin(), next, *next) != next) {
      continue;
    }
    const auto [from, bytes] = *next;
    const PlannedSchedule candidate = arranged(bytes, give_way, enough, {.from = from, .firm = true});
    const std::uint64_t committed = committed_bytes(candidate.schedule.arena_bytes);
    // Early loads do not change the smallest budget, since they depend on the budget of the run.
    const bool enters = committed <= enough && committed >= contest_.smallest_peak_bytes();
    const double seconds =
        enters ? contest_.enter(candidate, first_.lost_to_last_resorts(candidate)) : kNoRank.first;
    if (seconds < kNoRank.first && !is_late(seconds)) {
      return;
    }
  }
}

// Whether a step of the decisions evaluated last takes notably longer than by the model, and the model's step
// would be the fastest. A plan that does not fit has no step.
bool Candidates::is_late(double seconds) const {
  return seconds < kNoRank.first && seconds > (1 + kLate) * model_.seconds() &&
         model_.seconds() < contest_.best_seconds();
}

bool Candidates::may_load_early(const PlannedSchedule& known) const {
  const bool offloads_input = std::ranges::any_of(known.plan.transfers, [this](const Transfer& transfer) {
    return problem_.tape().producer(transfer.value) == kNone;
  });
  return offloads_input && !places_in_order_of_time(lifetimes(known.schedule));
}

bool Candidates::fits(const Schedule& schedule, std::uint64_t enough) const {
  return committed_bytes(schedule.arena_bytes) <= enough;
}

// Returns the seconds of the plan's step; infinity if the plan does not fit.
double Candidates::enter_if_small(const PlannedSchedule& candidate, std::uint64_t enough) {
  if (fits(candidate.schedule, enough) ||
      committed_bytes(candidate.schedule.arena_bytes) < contest_.smallest_peak_bytes()) {
    return contest_.enter(candidate, first_.lost_to_last_resorts(candidate));
  }
  return kNoRank.first;
}

}  // namespace vdnn::optimal
