#include "src/plan/optimal/recomputations.h"

#include <algorithm>

namespace vdnn::optimal {

RecomputationFinder::RecomputationFinder(const Problem& problem)
    : problem_(problem),
      by_first_after_(problem.gaps_by(&Gap::first_after)),
      search_(problem.tape(), problem.relaunches()) {
  for (ValueId value = 0; value < problem.tape().values().size(); ++value) {
    last_use_.push_back(problem.tape().last_use(value));
  }
}

const Recomputations& RecomputationFinder::find(const Fates& fates) {
  fates_ = &fates;
  found_.launches.clear();
  found_.back.assign(fates.size(), kNone);
  found_.read_early.assign(fates.size(), false);
  found_.impossible_gap = kNone;
  for (std::uint32_t gap = 0; gap < fates.size(); ++gap) {
    if (fates[gap] == Fate::kOffload) {
      found_.back[gap] = problem_.first_after(gap);
    }
  }
  for (const std::uint32_t gap : by_first_after_) {
    if (is_recomputed(fates[gap]) && found_.back[gap] == kNone &&
        !recompute_at(problem_.first_after(gap), gap)) {
      found_.impossible_gap = gap;
      break;
    }
  }
  return found_;
}

bool RecomputationFinder::recompute_at(OpId slot, std::uint32_t gap) {
  const auto may_make = [this, slot](ValueId value) {
    note_back(value, slot);
    return true;
  };
  const auto is_there_now = [this, slot](ValueId value) { return is_there(value, slot); };
  if (!search_.run({&problem_.gaps()[gap].value, 1}, may_make, is_there_now)) {
    return false;
  }
  count_passing(slot);
  return true;
}

// Records that the value, recomputed at the slot, is kept from there on. With kRemake it is kept only if the
// slot is its next use.
void RecomputationFinder::note_back(ValueId value, OpId slot) {
  const std::uint32_t gap = problem_.gap_at(value, slot);
  if (gap != kNone && ((*fates_)[gap] == Fate::kRecompute || problem_.first_after(gap) == slot)) {
    found_.back[gap] = slot;
  }
}

// Whether the value is on the device at the slot. A value on the host counts, since it is fetched in time.
bool RecomputationFinder::is_there(ValueId value, OpId slot) {
  if (last_use_[value] < slot) {
    return false;
  }
  const std::uint32_t gap = problem_.gap_at(value, slot);
  if (gap == kNone || (*fates_)[gap] == Fate::kKeep) {
    return true;
  }
  if ((*fates_)[gap] == Fate::kOffload) {
    found_.back[gap] = std::min(found_.back[gap], slot);
    found_.read_early[gap] = true;
    return true;
  }
  return found_.back[gap] <= slot;
}

// Whether the value, recomputed at the slot, is kept until its own next use.
bool RecomputationFinder::stays(ValueId value, OpId slot) const {
  const std::uint32_t gap = problem_.gap_at(value, slot);
  return gap != kNone && is_recomputed((*fates_)[gap]) && found_.back[gap] == slot;
}

void RecomputationFinder::count_passing(OpId slot) {
  const std::size_t first = found_.launches.size();
  std::int64_t alive = 0;
  std::int64_t staying = 0;
  const auto release = [&](ValueId value) {
    alive -= stays(value, slot) ? 0 : problem_.storage_bytes(value);
  };
  for (const OpId op : search_.ops()) {
    const Relaunch& again = problem_.relaunch(op);
    for (const Relaunch::Made& made : again.makes) {
      const std::int64_t bytes = problem_.storage_bytes(made.value);
      alive += made.overwrites == kNone ? bytes : 0;
      staying += stays(made.value, slot) ? bytes : 0;
    }
    found_.launches.push_back({.slot = slot, .op = op, .passing_bytes = alive});
    for (const Relaunch::Made& made : again.makes) {
      if (search_.last_reader(made.value) == kNone) {
        release(made.value);
      }
    }
    for (const ValueId read : again.reads) {
      const OpId producer = problem_.tape().producer(read);
      const bool is_made_here = producer != kNone && search_.launches(producer);
      const bool is_overwritten = std::ranges::any_of(
          again.makes, [read](const Relaunch::Made& made) { return made.overwrites == read; });
      if (is_made_here && !is_overwritten && search_.last_reader(read) == op) {
        release(read);
      }
    }
  }
  for (std::size_t each = first; each < found_.launches.size(); ++each) {
    found_.launches[each].passing_bytes -= staying;
  }
}

}  // namespace vdnn::optimal
