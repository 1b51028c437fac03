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

// How often ops step down in the search for addresses.
constexpr int kStepsDown = 3;
// Where there are no more gaps, plans are tried in which one more value leaves.
constexpr std::size_t kFewGaps = 40;

// Parts of the memory that plans try to leave free where no addresses are found.
constexpr std::array kSlacks{0.03, 0.08};

// Plans that take more than is enough by a larger part do not fit with smaller workspaces.
constexpr double kNear = 0.1;

// Ops that are looked at one by one: each takes a forecast.
constexpr std::size_t kMostOneByOne = 8;

// The part of an algorithm's time that another one takes that is to replace it.
constexpr double kMuchFaster = 0.5;

// Everything is placed anew for a workspace, and that has failed so often for the same plan: no more tries.
constexpr int kMostFailures = 8;

// Of what is alive at the fullest moment, the most that a plan should reserve.
constexpr double kMostReserved = 1.02;

std::uint64_t with_room(std::uint64_t bytes, const GiveWay& give_way) {
  return bytes + static_cast<std::uint64_t>(static_cast<double>(bytes) * give_way.room);
}

}  // namespace

Candidates::Candidates(const Problem& problem, const Problem& first, const PlanOptions& options,
                       Contest& contest)
    : problem_(problem), first_(first), options_(options), contest_(contest), layout_(problem) {}

std::uint64_t Candidates::committed_bytes(std::uint64_t bytes) const {
  return round_up(problem_.persistent_bytes() + bytes, problem_.costs().granule_bytes);
}

void Candidates::consider(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough,
                          Insistence insistence) {
  if (!layout_.evaluate(decisions, bytes).feasible()) {
    return;
  }
  Schedule schedule = arrange_and_enter(bytes, {}, enough);
  if (insistence == Insistence::kNone || fits(schedule, enough) ||
      (problem_.gaps().size() <= kFewGaps && consider_with_moves(decisions, bytes, enough))) {
    return;
  }
  // Steps down move a few workspaces alone.
  const bool near =
      static_cast<double>(committed_bytes(schedule.arena_bytes)) <= (1 + kNear) * static_cast<double>(enough);
  if (!(near && consider_with_steps(decisions, std::move(schedule), bytes, enough)) &&
      !consider_with_slack(decisions, bytes, enough)) {
    layout_.evaluate(decisions, bytes);
    consider_with_delays(bytes, enough);
  }
}

void Candidates::consider_closer(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  if (!layout_.evaluate(decisions, bytes).feasible()) {
    return;
  }
  const Schedule schedule = arranged(bytes, {}, enough).schedule;
  if (const std::uint64_t goal = close_bytes(schedule); schedule.arena_bytes > goal) {
    consider_as_evaluated(goal, enough);
  }
}

void Candidates::consider_without_last_resorts(const Leader& leader, std::uint64_t enough) {
  if (leader.seconds - problem_.lost_to_last_resorts(leader.schedule) >= contest_.best_seconds()) {
    return;
  }
  PlannedSchedule known = leader.schedule;
  bool changed = replace_in_place(known, last_resorts(known.plan), enough);
  if (changed && contest_.enter(known) > (leader.seconds + leader.least_seconds) / 2) {
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

// A large workspace may make its op wait for a copy that was there before. So each is kept only where it
// makes the step shorter.
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
  layout_.evaluate(decisions, bytes);
  double seconds = 0;
  for (OpId op = 0; op < problem_.slots(); ++op) {
    seconds += first_.lost_to_last_resort(op, problem_.choices(op)[layout_.choice(op)].algorithm);
  }
  return seconds;
}

// Those that lose most come first.
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

// Everything else stays where it lies: no op is in another's way, since each has its workspace for itself.
bool Candidates::replace_in_place(PlannedSchedule& known, std::span<const OpId> ops,
                                  std::uint64_t enough) const {
  const std::uint64_t most = enough - std::min(enough, problem_.persistent_bytes());
  std::map<OpId, std::uint32_t> tried;  // an op's choice
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
    for (const OpId op : std::set(high.begin(), high.end())) {  // each once, however often it is launched
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

// How many of the op's choices, which are its first ones, are much faster than the algorithm.
std::uint32_t Candidates::faster_choices(OpId op, std::uint32_t algorithm) const {
  const double most = kMuchFaster * problem_.costs().op_seconds[op][algorithm];
  const auto is_faster = [most](const Choice& choice) { return choice.seconds <= most; };
  const std::vector<Choice>& all = problem_.choices(op);
  return static_cast<std::uint32_t>(std::ranges::find_if_not(all, is_faster) - all.begin());
}

// With the least workspace that makes it much faster the op finds a place where all others make room.
bool Candidates::rearrange(PlannedSchedule& known, OpId op, std::uint64_t enough) const {
  const std::uint32_t faster = faster_choices(op, known.plan.algorithms[op]);
  if (faster == 0) {
    return false;
  }
  Plan plan = known.plan;
  plan.algorithms[op] = problem_.choices(op)[faster - 1].algorithm;
  return adopt(known, std::move(plan), enough);
}

// False: there are no addresses for the plan.
bool Candidates::adopt(PlannedSchedule& known, Plan plan, std::uint64_t enough) const {
  std::optional<Schedule> schedule = arrange_as_before(
      problem_, plan, known.schedule, enough - std::min(enough, problem_.persistent_bytes()));
  if (!schedule || !fits(*schedule, enough)) {
    return false;
  }
  known = {.plan = std::move(plan), .schedule = std::move(*schedule)};
  return true;
}

// Results give way (they are smaller than a granule); then one more value leaves, for another address. All
// of that is tried: any may be the fastest that fits.
bool Candidates::consider_with_moves(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  constexpr GiveWay kResults{.results = true};
  layout_.evaluate(decisions, bytes);
  Decisions as_chosen = decisions;  // what the value leaves behind is for its way back, not for ops
  for (OpId op = 0; op < problem_.slots(); ++op) {
    as_chosen.least_choice[op] = static_cast<std::uint8_t>(layout_.choice(op));
  }
  bool any_fits = consider_as_evaluated(bytes, enough, kResults);
  for (std::uint32_t gap = 0; gap < decisions.fates.size(); ++gap) {
    Decisions moved = as_chosen;
    moved.fates[gap] = Fate::kOffload;
    if (decisions.fates[gap] == Fate::kKeep && layout_.evaluate(moved, bytes).feasible()) {
      any_fits = consider_as_evaluated(bytes, enough, kResults) || any_fits;
    }
  }
  return any_fits;
}

// Nothing gives way but the workspaces of ops that lie too high, a few times. `schedule` is the decisions'
// own, which does not fit. False: no other fits either.
bool Candidates::consider_with_steps(Decisions decisions, Schedule schedule, std::uint64_t bytes,
                                     std::uint64_t enough) {
  layout_.evaluate(decisions, bytes);
  for (int step = 1; step <= kStepsDown; ++step) {
    bool stepped = false;
    for (const OpId op : ops_too_high(schedule, bytes)) {
      const std::uint32_t choice = layout_.choice(op);
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
    layout_.evaluate(decisions, bytes);
    schedule = arrange_and_enter(bytes, {}, enough);
    if (fits(schedule, enough)) {
      return true;
    }
  }
  return false;
}

// A little memory stays free wherever it can.
bool Candidates::consider_with_slack(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  return std::ranges::any_of(kSlacks, [&](double slack) {
    layout_.evaluate(decisions, bytes, slack);
    return consider_as_evaluated(bytes, enough);
  });
}

// False: it does not fit.
bool Candidates::consider_as_evaluated(std::uint64_t bytes, std::uint64_t enough, GiveWay give_way) {
  return fits(arrange_and_enter(bytes, give_way, enough), enough);
}

// Of what was evaluated last: what is resident without need gives way. Where ops are held up, less room may
// be the faster.
void Candidates::consider_with_delays(std::uint64_t bytes, std::uint64_t enough) {
  std::uint64_t committed = 0;
  for (const GiveWay& give_way : std::span(kWaysToGive).subspan(1)) {
    // Results are smaller than a granule.
    if (give_way.results &&
        committed > std::max(enough, contest_.smallest_peak_bytes()) + problem_.costs().granule_bytes) {
      continue;
    }
    PlannedSchedule candidate = arranged(with_room(bytes, give_way), give_way, enough);
    if (give_way.room > 0 && candidate.schedule.arena_bytes > close_bytes(candidate.schedule)) {
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

// Ops whose workspaces reach beyond the goal; or, where none does, those that other buffers which do were
// kept from lying lower by.
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

// Decisions that were evaluated last. To be forecast only within `enough` bytes, or where it takes less than
// all that is known.
PlannedSchedule Candidates::arranged(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough) {
  PlannedSchedule candidate;
  candidate.plan.options = options_;
  layout_.write(candidate.plan);
  const std::uint64_t most = std::max(enough, contest_.smallest_peak_bytes());
  candidate.schedule = arrange(problem_, candidate.plan, layout_.next_load(), goal, give_way, placements_,
                               most - std::min(most, problem_.persistent_bytes()));
  return candidate;
}

// Decisions that were evaluated last. Returns their schedule, entered or not.
Schedule Candidates::arrange_and_enter(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough) {
  PlannedSchedule candidate = arranged(goal, give_way, enough);
  enter_if_small(candidate, enough);
  return std::move(candidate.schedule);
}

bool Candidates::fits(const Schedule& schedule, std::uint64_t enough) const {
  return committed_bytes(schedule.arena_bytes) <= enough;
}

void Candidates::enter_if_small(const PlannedSchedule& candidate, std::uint64_t enough) {
  if (fits(candidate.schedule, enough) ||
      committed_bytes(candidate.schedule.arena_bytes) < contest_.smallest_peak_bytes()) {
    contest_.enter(candidate, first_.lost_to_last_resorts(candidate));
  }
}

// More room is no excuse to place badly.
std::uint64_t Candidates::close_bytes(const Schedule& schedule) const {
  const std::uint64_t live = most_live_bytes(lifetimes(schedule), problem_.costs().alignment_bytes);
  return static_cast<std::uint64_t>(kMostReserved * static_cast<double>(live));
}

}  // namespace vdnn::optimal
