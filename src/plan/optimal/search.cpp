#include "src/plan/optimal/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "vdnn/size.h"

namespace vdnn::optimal {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Limits on the number of slots that are evaluated over all sizes, by the rules and by each kind of
// improvement. They bound the time of the search. A very long tape exceeds them, since at least kFewestSizes
// sizes are searched. A short tape does not reach them, since at most kMostSizes are. Decisions that lack
// memory are changed and evaluated again, at most kReliefs times.
constexpr std::size_t kSizeSlots = 104'000;
constexpr std::size_t kSegmentSlots = 8'000'000;
constexpr std::size_t kImprovementSlots = 30'000'000;
constexpr std::size_t kRuinSlots = 12'000'000;
constexpr std::size_t kFewestSizes = 24;
constexpr std::size_t kMostSizes = 100;

constexpr std::array kFates{Fate::kKeep, Fate::kRecompute, Fate::kOffload, Fate::kRemake};

// If two decisions have the same hash, one of them is not evaluated, which does no other harm.
std::size_t hash_of(const Decisions& decisions) {
  static_assert(sizeof(Fate) == 1);
  const std::hash<std::string_view> hash;
  const std::size_t fates =
      hash({reinterpret_cast<const char*>(decisions.fates.data()), decisions.fates.size()});
  const std::size_t choices =
      hash({reinterpret_cast<const char*>(decisions.least_choice.data()), decisions.least_choice.size()});
  return fates ^ (choices * 0x9e3779b97f4a7c15U);
}

// Sizes that differ by less than this have the same random seed.
constexpr std::uint64_t kBytesApart = 4096;
constexpr std::size_t kTimesWhereTight = 3;  // at tight sizes, the number of tries is multiplied by this
// The longest stretch of gaps that is decided anew.
constexpr std::size_t kLongestRuin = 12;

std::size_t size_count(const Problem& problem) {
  return std::clamp(kSizeSlots / std::max<std::size_t>(problem.slots(), 1), kFewestSizes, kMostSizes);
}

constexpr int kReliefs = 8;  // largest number of calls of StepModel::relieve() for decisions that lack memory
// The largest number of attempts with a rule. Each attempt also frees the memory that the previous attempt
// lacked.
constexpr int kAttempts = 4;

}  // namespace

// The sizes range from the least memory that any plan needs to the memory for keeping everything with the
// fastest algorithms. Each size has the same ratio to the previous one, so small sizes are closer together:
// the less memory there is, the more a small difference matters.
std::vector<std::uint64_t> sizes(const Problem& problem) {
  const std::size_t count = size_count(problem);
  const std::uint64_t least = problem.least_bytes();
  const std::uint64_t most = std::max(least, problem.most_bytes());
  const double ratio = static_cast<double>(most) / static_cast<double>(std::max<std::uint64_t>(least, 1));
  std::vector<std::uint64_t> result;
  for (std::size_t each = 0; each < count; ++each) {
    const double share = static_cast<double>(each) / static_cast<double>(count);
    result.push_back(static_cast<std::uint64_t>(static_cast<double>(least) * std::pow(ratio, share)));
  }
  result.push_back(most);
  // Whole granules are committed, so the rest of the last granule costs nothing.
  const std::uint64_t fixed = problem.persistent_bytes();
  for (std::uint64_t& bytes : result) {
    bytes = round_up(fixed + bytes, problem.costs().granule_bytes) - fixed;
  }
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Search::Search(const Problem& problem, std::uint64_t host_bytes)
    : problem_(problem),
      host_bytes_(host_bytes),
      model_(problem),
      selection_(problem, host_bytes),
      rules_(selection_rules()) {
  const std::size_t slots = std::max(kSizeSlots, problem.slots() * kFewestSizes);
  segment_tries_ = kSegmentSlots / slots;
  ruins_ = kRuinSlots / slots;
  tries_ = kImprovementSlots / slots;
  segments_.push_back(0);
  for (std::uint32_t gap = 0; gap < problem.gaps().size(); ++gap) {
    if (problem.gaps()[gap].cut) {
      segments_.push_back(gap + 1);
    }
  }
  segments_.push_back(static_cast<std::uint32_t>(problem.gaps().size()) + 1);
}

Found Search::try_rules(std::uint64_t bytes) {
  begin_anew(bytes);
  Found best{.bytes = bytes, .decisions = {}, .seconds = kNever};
  for (const SelectionRule& rule : rules_) {
    try_rule(rule, best);
  }
  return best;
}

// Tries all kinds of moves until none of them makes the step shorter or no tries are left.
void Search::improve(Found& best, Effort effort) {
  const std::size_t times = effort == Effort::kTight ? kTimesWhereTight : 1;
  offload_inputs(best);
  improve_by_segments(best);
  ruin_and_recreate(best, times * ruins_);
  std::size_t tries = times * tries_;
  while (tries > 0 && (step_down(best, tries) || improve_fates(best, tries) ||
                       improve_algorithms(best, tries) || improve_in_pairs(best, tries))) {
  }
}

// Each size begins at another segment and another gap, in case there are fewer tries than segments or gaps.
void Search::begin_anew(std::uint64_t bytes) {
  const auto seed = static_cast<std::minstd_rand::result_type>(bytes / kBytesApart);
  seen_.clear();
  selection_.seed(seed);
  random_.seed(seed);
  next_segment_ = random_() % (segments_.size() - 1);
  next_gap_ = static_cast<std::uint32_t>(random_() % std::max<std::size_t>(problem_.gaps().size(), 1));
}

void Search::try_rule(const SelectionRule& rule, Found& best) {
  too_much_.assign(problem_.slots(), 0);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Decisions decisions = selection_.select(rule, best.bytes, too_much_);
    if (!seen_.insert(hash_of(decisions)).second) {
      return;
    }
    const Outcome outcome = evaluate(decisions, best);
    if (outcome.feasible()) {
      take_if_better(decisions, outcome, best);
      return;
    }
    if (outcome.impossible_gap != kNone) {
      return;
    }
    const Outcome relieved = relieve(outcome, decisions, best);
    if (relieved.feasible() && relieved.host_bytes <= host_bytes_) {
      take_if_better(decisions, relieved, best);
      return;
    }
    for (const Shortage& shortage : outcome.shortages) {
      too_much_[shortage.slot] += shortage.bytes;
    }
  }
}

// Changes decisions that lack memory until they fit, at most kReliefs times. They can lack memory since the
// selection does not count the temporary memory of recomputations.
Outcome Search::relieve(const Outcome& outcome, Decisions& decisions, const Found& best) {
  Outcome now = outcome;
  for (int round = 0; round < kReliefs && !now.shortages.empty(); ++round) {
    if (!model_.relieve(now.shortages, decisions, random_)) {
      break;
    }
    now = evaluate(decisions, best);
  }
  return now;
}

// Evaluates decisions. The evaluation stops early if they cannot be better than the best.
Outcome Search::evaluate(const Decisions& decisions, const Found& best) {
  return model_.evaluate(decisions, best.bytes, 0, best.seconds);
}

// Replaces the best decisions if `decisions` are better, and returns whether they are.
bool Search::try_decisions(const Decisions& decisions, Found& best) {
  return take_if_better(decisions, evaluate(decisions, best), best);
}

bool Search::take_if_better(const Decisions& decisions, const Outcome& outcome, Found& best) {
  if (!outcome.feasible() || outcome.host_bytes > host_bytes_ || outcome.seconds >= best.seconds) {
    return false;
  }
  best.seconds = outcome.seconds;
  best.decisions = decisions;
  note_tight();
  return true;
}

// Records the tight slots of the decisions evaluated last.
void Search::note_tight() {
  const std::vector<bool> tight = model_.tight();
  tight_before_.resize(tight.size() + 1);
  choice_.resize(tight.size());
  for (OpId slot = 0; slot < tight.size(); ++slot) {
    tight_before_[slot + 1] = tight_before_[slot] + (tight[slot] ? 1 : 0);
    choice_[slot] = static_cast<std::uint8_t>(model_.choice(slot));
  }
  held_up_ = model_.held_up();
  std::ranges::sort(held_up_);
  held_up_.erase(std::unique(held_up_.begin(), held_up_.end()), held_up_.end());
}

bool Search::is_tight(const Gap& gap) const {
  return tight_before_[gap.first_after] > tight_before_[gap.last_before + 1];
}

bool Search::may_have(std::uint32_t gap, Fate fate) const {
  return !is_recomputed(fate) || problem_.gaps()[gap].may_recompute;
}

// Whether the fate is new for the gap and may make the step shorter.
bool Search::may_help(const Found& best, std::uint32_t gap, Fate fate) const {
  const Fate now = best.decisions.fates[gap];
  if (fate == now || !may_have(gap, fate)) {
    return false;
  }
  return now != Fate::kKeep || is_tight(problem_.gaps()[gap]);
}

// Offloads inputs even if there is memory for them, since the next step's inputs can then be loaded while
// this step computes.
void Search::offload_inputs(Found& best) {
  for (const ValueId input : problem_.tape().inputs()) {
    if (const std::uint32_t gap = problem_.main_gap(input); gap != kNone) {
      Decisions decisions = best.decisions;
      decisions.fates[gap] = Fate::kOffload;
      try_decisions(decisions, best);
    }
  }
}

// Changes the fates of all values between two cuts at once. Such values are often best recomputed together,
// or must leave together to make a difference.
void Search::improve_by_segments(Found& best) {
  std::size_t tries = segment_tries_;
  const std::size_t count = segments_.size() - 1;
  for (std::size_t each = 0; each < count && tries > 0; ++each, next_segment_ = (next_segment_ + 1) % count) {
    const std::size_t segment = next_segment_;
    for (const Fate fate : {Fate::kKeep, Fate::kRecompute, Fate::kOffload}) {
      std::vector<std::uint32_t> changed;
      for (std::uint32_t gap = segments_[segment]; gap + 1 < segments_[segment + 1]; ++gap) {
        const bool possible = fate == Fate::kKeep || problem_.gaps()[gap].main;
        if (possible && may_help(best, gap, fate)) {
          changed.push_back(gap);
        }
      }
      if (!changed.empty()) {
        Decisions decisions = best.decisions;
        for (const std::uint32_t gap : changed) {
          decisions.fates[gap] = fate;
        }
        try_decisions(decisions, best);
        tries -= std::min<std::size_t>(tries, 1);
      }
    }
  }
}

// Ruin and recreate (Schrimpf et al. 2000): decides the fates of a few neighbouring values anew, and keeps
// the result if it is better.
void Search::ruin_and_recreate(Found& best, std::size_t times) {
  const auto draw = [this](std::size_t below) { return static_cast<std::uint32_t>(random_() % below); };
  const auto count = static_cast<std::uint32_t>(problem_.gaps().size());
  for (std::size_t each = 0; each < times && count > 0; ++each) {
    const std::uint32_t begin = draw(count);
    const Selection::Stretch stretch{
        .begin = begin,
        .end = std::min(begin + 1 + draw(kLongestRuin), count),
        .first_stays = best.decisions.fates[begin] != Fate::kKeep && draw(2) == 0,
        .again = draw(2) == 0 ? Fate::kRecompute : Fate::kRemake};
    const double price = kLinkPrices[draw(kLinkPrices.size())];
    Decisions decisions = selection_.recreate(best.decisions, stretch, price, best.bytes);
    const Outcome outcome = relieve(evaluate(decisions, best), decisions, best);
    take_if_better(decisions, outcome, best);
  }
}

// Where a workspace delays copies, tries slower algorithms with smaller workspaces: first for all such ops at
// once, then for each op alone.
bool Search::step_down(Found& best, std::size_t& tries) {
  const double before = best.seconds;
  const std::vector<OpId> slots = held_up_;
  const auto last = [&](OpId op) { return problem_.last_choice(op); };
  Decisions all = best.decisions;
  bool any = false;
  for (const OpId op : slots) {
    any = any || choice_[op] < last(op);
    all.least_choice[op] = static_cast<std::uint8_t>(std::max<std::uint32_t>(choice_[op], last(op)));
  }
  if (!any) {
    return false;
  }
  try_decisions(all, best);
  tries -= std::min<std::size_t>(tries, 1);
  for (const OpId op : slots) {
    for (std::size_t choice = choice_[op] + 1U; choice <= last(op) && tries > 0; ++choice) {
      Decisions decisions = best.decisions;
      decisions.least_choice[op] = static_cast<std::uint8_t>(choice);
      try_decisions(decisions, best);
      --tries;
    }
  }
  return best.seconds < before;
}

// Tries other fates for one gap at a time. If there are fewer tries than gaps, the next call continues where
// this call stops.
bool Search::improve_fates(Found& best, std::size_t& tries) {
  const double before = best.seconds;
  const std::size_t count = best.decisions.fates.size();
  for (std::size_t each = 0; each < count && tries > 0; ++each) {
    next_gap_ = next_gap_ + 1 < count ? next_gap_ + 1 : 0;
    for (const Fate fate : kFates) {
      if (tries > 0 && may_help(best, next_gap_, fate)) {
        Decisions decisions = best.decisions;
        decisions.fates[next_gap_] = fate;
        try_decisions(decisions, best);
        --tries;
      }
    }
  }
  return best.seconds < before;
}

// Tries faster algorithms for ops whose algorithms the decisions restrict.
bool Search::improve_algorithms(Found& best, std::size_t& tries) {
  const double before = best.seconds;
  for (OpId op = 0; op < problem_.slots() && tries > 0; ++op) {
    for (std::uint8_t choice = 0; choice < best.decisions.least_choice[op] && tries > 0; ++choice) {
      Decisions decisions = best.decisions;
      decisions.least_choice[op] = choice;
      --tries;
      if (try_decisions(decisions, best)) {
        break;
      }
    }
  }
  return best.seconds < before;
}

// Tries new fates for two gaps at once: the value of one gap may free memory, or time of the link, for the
// other value.
bool Search::improve_in_pairs(Found& best, std::size_t& tries) {
  const double before = best.seconds;
  for (std::uint32_t one = 0; one < best.decisions.fates.size(); ++one) {
    for (std::uint32_t other = 0; other < one; ++other) {
      for (std::size_t both = 0; both < kFates.size() * kFates.size() && tries > 0; ++both) {
        const Fate fate_of_one = kFates[both / kFates.size()];
        const Fate fate_of_other = kFates[both % kFates.size()];
        const bool possible = fate_of_one != best.decisions.fates[one] && may_have(one, fate_of_one) &&
                              fate_of_other != best.decisions.fates[other] && may_have(other, fate_of_other);
        // At least one of the two values must leave: moves in which both are kept have been tried one by one.
        if (possible && (fate_of_one != Fate::kKeep || fate_of_other != Fate::kKeep)) {
          Decisions decisions = best.decisions;
          decisions.fates[one] = fate_of_one;
          decisions.fates[other] = fate_of_other;
          try_decisions(decisions, best);
          --tries;
        }
      }
    }
  }
  return best.seconds < before;
}

}  // namespace vdnn::optimal
