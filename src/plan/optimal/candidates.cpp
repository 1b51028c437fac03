#include "src/plan/optimal/candidates.h"

#include <algorithm>
#include <array>
#include <optional>
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

// Of what is alive at the fullest moment, the most that a plan should reserve.
constexpr double kMostReserved = 1.02;

std::uint64_t with_room(std::uint64_t bytes, const GiveWay& give_way) {
  return bytes + static_cast<std::uint64_t>(static_cast<double>(bytes) * give_way.room);
}

}  // namespace

Candidates::Candidates(const Problem& problem, const PlanOptions& options, Contest& contest)
    : problem_(problem), options_(options), contest_(contest), layout_(problem) {}

std::uint64_t Candidates::committed_bytes(std::uint64_t bytes) const {
  return round_up(problem_.persistent_bytes() + bytes, problem_.costs().granule_bytes);
}

void Candidates::consider(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough) {
  if (!layout_.evaluate(decisions, bytes).feasible()) {
    return;
  }
  Schedule schedule = arrange_and_enter(bytes, {}, enough);
  if (fits(schedule, enough) ||
      (problem_.gaps().size() <= kFewGaps && consider_with_moves(decisions, bytes, enough))) {
    return;
  }
  if (!consider_with_steps(decisions, std::move(schedule), bytes, enough) &&
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

void Candidates::consider_without_last_resorts(PlannedSchedule known, std::uint64_t enough) {
  bool changed = false;
  for (OpId op = 0; known.schedule.arena_bytes > 0 && op < problem_.slots(); ++op) {
    changed = replace_last_resort(known, op, enough) || changed;
  }
  if (changed) {
    contest_.enter(known);
  }
}

bool Candidates::replace_last_resort(PlannedSchedule& known, OpId op, std::uint64_t enough) const {
  if (!problem_.is_last_resort(op, known.plan.algorithms[op])) {
    return false;
  }
  const auto others = std::span(problem_.choices(op)).first(problem_.last_choice(op) + 1);
  return std::ranges::any_of(others, [&](const Choice& choice) {
    Plan plan = known.plan;
    plan.algorithms[op] = choice.algorithm;
    std::optional<Schedule> schedule = arrange_as_before(
        problem_, plan, known.schedule, enough - std::min(enough, problem_.persistent_bytes()));
    if (!schedule || !fits(*schedule, enough)) {
      return false;
    }
    known = {.plan = std::move(plan), .schedule = std::move(*schedule)};
    return true;
  });
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
  std::vector<OpId> op_of(schedule.buffers.size(), kNone);
  for (const Instruction& instruction : schedule.instructions) {
    if (is_launch(instruction.kind) && instruction.operands.back() != kNone) {
      op_of[instruction.operands.back()] = instruction.op;
    }
  }
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
PlannedSchedule Candidates::arranged(std::uint64_t goal, const GiveWay& give_way,
                                     std::uint64_t enough) const {
  PlannedSchedule candidate;
  candidate.plan.options = options_;
  layout_.write(candidate.plan);
  const std::uint64_t most = std::max(enough, contest_.smallest_peak_bytes());
  candidate.schedule = arrange(problem_, candidate.plan, layout_.next_load(), goal, give_way,
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
    contest_.enter(candidate);
  }
}

// More room is no excuse to place badly.
std::uint64_t Candidates::close_bytes(const Schedule& schedule) const {
  const std::uint64_t live = most_live_bytes(lifetimes(schedule), problem_.costs().alignment_bytes);
  return static_cast<std::uint64_t>(kMostReserved * static_cast<double>(live));
}

}  // namespace vdnn::optimal
