#include "src/plan/optimal/selection.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace vdnn::optimal {

namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
// Each round of greedy covering uses 1 / kParts of all sources. Then the sources are ranked anew.
constexpr std::size_t kParts = 12;
// When decisions are made anew, the cost of each source is raised by a random fraction of at most kNoise.
constexpr double kNoise = 1;

double price(const Gap& gap) {
  return gap.recompute_seconds / (gap.offload_seconds + gap.prefetch_seconds);
}

// The seconds to offload or recompute the value in a gap that is not a main gap, whichever takes less.
double minor_seconds(const Gap& gap) {
  const double moved = gap.offload_seconds + gap.prefetch_seconds;
  return gap.may_recompute ? std::min(gap.recompute_seconds, moved) : moved;
}
double seconds_per_byte(const Gap& gap) {
  return minor_seconds(gap) / static_cast<double>(gap.freed_bytes);
}

}  // namespace

std::vector<SelectionRule> selection_rules() {
  std::vector<SelectionRule> all;
  for (const bool fast : {true, false}) {
    for (const double share : {0.0, 0.25, 0.5, 1.0, kAny}) {
      all.push_back({.link_share = share, .fast_algorithms = fast});
    }
    for (const double price : {0.1, 0.4}) {
      all.push_back({.recompute_price = price, .link_share = kAny, .fast_algorithms = fast});
    }
    for (const double checkpoints : {0.08, 0.3}) {
      for (const double price : {0.4, kAny}) {
        all.push_back({.recompute_price = price,
                       .link_share = kAny,
                       .checkpoint_share = checkpoints,
                       .fast_algorithms = fast});
      }
    }
    for (const double checkpoints : {0.01, 0.05, 0.1, 0.2, 0.35, 0.5}) {
      all.push_back({.recompute_price = kAny,
                     .checkpoint_share = checkpoints,
                     .checkpoint_at_cuts = true,
                     .fast_algorithms = fast});
    }
  }
  for (const double price : kLinkPrices) {
    all.push_back({.link_price = price});
    all.push_back({.link_price = price, .again = Fate::kRemake});
  }
  return all;
}

Selection::Selection(const Problem& problem, std::uint64_t host_bytes)
    : problem_(problem), host_bytes_(host_bytes) {
  const std::vector<Gap>& gaps = problem.gaps();
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (!gaps[gap].main) {
      minor_.push_back(gap);
    } else if (gaps[gap].may_recompute) {
      by_price_.push_back(gap);
    }
  }
  std::ranges::stable_sort(minor_, {}, [&](std::uint32_t gap) { return seconds_per_byte(gaps[gap]); });
  std::ranges::stable_sort(by_price_, {}, [&](std::uint32_t gap) { return price(gaps[gap]); });
  for (OpId op = 0; op < problem.tape().forward_ops(); ++op) {
    forward_seconds_ += problem.fastest(op);
  }
  without_main_ = resident_without_main();
}

// By slot: the resident bytes if the values of all main gaps have left.
std::vector<std::uint64_t> Selection::resident_without_main() const {
  std::vector<std::int64_t> change(problem_.slots() + 1, 0);
  for (const Gap& gap : problem_.gaps()) {
    if (gap.main) {
      change[gap.last_before + 1] -= static_cast<std::int64_t>(gap.freed_bytes);
      change[gap.first_after] += static_cast<std::int64_t>(gap.freed_bytes);
    }
  }
  std::vector<std::uint64_t> result;
  std::int64_t gone = 0;
  for (std::size_t slot = 0; slot < problem_.slots(); ++slot) {
    gone += change[slot];
    result.push_back(
        static_cast<std::uint64_t>(static_cast<std::int64_t>(problem_.resident_bytes()[slot]) + gone));
  }
  return result;
}

Decisions Selection::select(const SelectionRule& rule, std::uint64_t bytes,
                            const std::vector<std::uint64_t>& too_much) {
  fates_.assign(problem_.gaps().size(), Fate::kKeep);
  least_choice_.assign(problem_.slots(), 0);
  evicted_.clear();
  offloaded_bytes_ = 0;
  link_seconds_ = 0;
  again_ = rule.again;
  if (rule.link_price > 0) {
    cover(rule.link_price, 0, bytes, too_much);
  } else {
    select_by_rule(rule, bytes, too_much);
  }
  return {.fates = fates_, .least_choice = least_choice_};
}

void Selection::select_by_rule(const SelectionRule& rule, std::uint64_t bytes,
                               const std::vector<std::uint64_t>& too_much) {
  const std::vector<Gap>& gaps = problem_.gaps();
  count_excess(rule, bytes, too_much);
  checkpoint_.assign(gaps.size(), false);
  if (rule.checkpoint_share > 0) {
    std::uint64_t chain = 0;
    for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
      chain += gaps[gap].bytes;
      const bool possible = gaps[gap].cut || !rule.checkpoint_at_cuts;
      if (possible && static_cast<double>(chain) >= rule.checkpoint_share * static_cast<double>(bytes)) {
        checkpoint_[gap] = true;
        chain = 0;
      }
    }
  }
  recompute(rule.recompute_price);
  offload(rule.link_share * forward_seconds_);
  recompute(kAny);
  offload(kAny);
  evict_minor(rule.recompute_price > 0 || rule.link_share < kAny);
  keep_what_fits();
}

// --- greedy covering ---------------------------------------------------------------------------------------
// Counts the bytes that each slot lacks under the decisions so far, without the temporary memory of
// recomputations.
void Selection::count_demand(std::uint64_t bytes, const std::vector<std::uint64_t>& too_much) {
  const std::vector<Gap>& gaps = problem_.gaps();
  std::vector<std::int64_t> change(problem_.slots() + 1, 0);
  offloaded_bytes_ = 0;
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (fates_[gap] == Fate::kKeep) {
      continue;
    }
    change[gaps[gap].last_before + 1] -= static_cast<std::int64_t>(gaps[gap].freed_bytes);
    change[gaps[gap].first_after] += static_cast<std::int64_t>(gaps[gap].freed_bytes);
    const bool first = std::none_of(fates_.begin() + problem_.gaps_of(gaps[gap].value).first,
                                    fates_.begin() + gap, [](Fate fate) { return fate == Fate::kOffload; });
    if (fates_[gap] == Fate::kOffload && first) {
      offloaded_bytes_ += problem_.tape().value(gaps[gap].value).bytes;
    }
  }
  demand_.resize(problem_.slots());
  std::int64_t gone = 0;
  for (OpId slot = 0; slot < problem_.slots(); ++slot) {
    gone += change[slot];
    const std::uint64_t needed = problem_.resident_bytes()[slot] + too_much[slot] +
                                 problem_.choices(slot)[least_choice_[slot]].workspace_bytes;
    demand_[slot] = static_cast<std::int64_t>(needed) + gone - static_cast<std::int64_t>(bytes);
  }
  excess_.assign(demand_);
}

Decisions Selection::recreate(const Decisions& from, Stretch stretch, double link_price,
                              std::uint64_t bytes) {
  const std::vector<Gap>& gaps = problem_.gaps();
  fates_ = from.fates;
  least_choice_ = from.least_choice;
  for (std::uint32_t gap = stretch.begin; gap < stretch.end; ++gap) {
    fates_[gap] = Fate::kKeep;
    least_choice_[gaps[gap].made] = 0;
    least_choice_[gaps[gap].last_before] = 0;
    least_choice_[gaps[gap].first_after] = 0;
  }
  again_ = stretch.again;
  stays_ = stretch.first_stays ? stretch.begin : kNone;
  cover(link_price, kNoise, bytes, std::vector<std::uint64_t>(problem_.slots(), 0));
  stays_ = kNone;
  return {.fates = fates_, .least_choice = least_choice_};
}

void Selection::cover(double link_price, double noise, std::uint64_t bytes,
                      const std::vector<std::uint64_t>& too_much) {
  count_demand(bytes, too_much);
  std::vector<Source> taken;
  for (bool any = true; any && excess_.greatest() > 0;) {
    std::vector<Source> all = sources(link_price, noise);
    const std::size_t most = std::max<std::size_t>(1, all.size() / kParts);
    const auto cheapest = all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), 2 * most));
    std::ranges::partial_sort(all, cheapest, {}, [](const Source& source) {
      return std::tuple(source.seconds_per_byte, source.algorithm, source.index);
    });
    std::size_t left = most;
    any = false;
    std::vector<std::int64_t> change(demand_.size() + 1, 0);
    for (auto source = all.begin(); source != cheapest && left > 0; ++source) {
      if (excess_.greatest(source->begin, source->end) > 0 && take(*source)) {
        change[source->begin] -= static_cast<std::int64_t>(source->bytes);
        change[source->end] += static_cast<std::int64_t>(source->bytes);
        taken.push_back(*source);
        any = true;
        --left;
      }
    }
    std::int64_t sum = 0;
    for (std::size_t slot = 0; slot < demand_.size(); ++slot) {
      sum += change[slot];
      demand_[slot] += sum;
    }
  }
  give_back(taken);
}

// The sources that may still free memory at slots that lack memory.
std::vector<Selection::Source> Selection::sources(double link_price, double noise) {
  std::vector<std::uint32_t> short_before(demand_.size() + 1, 0);
  for (std::size_t slot = 0; slot < demand_.size(); ++slot) {
    short_before[slot + 1] = short_before[slot] + (demand_[slot] > 0 ? 1 : 0);
  }
  std::vector<Source> all;
  const auto add = [&](Source source) {
    if (const std::uint32_t slots = short_before[source.end] - short_before[source.begin]; slots > 0) {
      const double chance = static_cast<double>(random_()) / static_cast<double>(std::minstd_rand::max());
      source.seconds_per_byte =
          source.seconds * (1 + noise * chance) / (static_cast<double>(source.bytes) * slots);
      all.push_back(source);
    }
  };
  for (std::uint32_t gap = 0; gap < fates_.size(); ++gap) {
    if (fates_[gap] == Fate::kKeep && gap != stays_) {
      add(source_of(gap, link_price));
    }
  }
  for (OpId op = 0; op < demand_.size(); ++op) {
    if (const std::optional<Source> source = demand_[op] > 0 ? source_of_op(op) : std::nullopt) {
      add(*source);
    }
  }
  return all;
}

Selection::Source Selection::source_of(std::uint32_t index, double link_price) const {
  const Gap& gap = problem_.gaps()[index];
  const bool copied = on_host(gap);
  const double moved = link_price * (gap.prefetch_seconds + (copied ? 0 : gap.offload_seconds));
  const bool has_place = copied || offloaded_bytes_ + problem_.tape().value(gap.value).bytes <= host_bytes_;
  const bool recompute = gap.may_recompute && (!has_place || gap.recompute_seconds < moved);
  return {.seconds = recompute ? gap.recompute_seconds : moved,
          .begin = gap.last_before + 1,
          .end = gap.first_after,
          .bytes = gap.freed_bytes,
          .index = index,
          .fate = recompute ? again_ : Fate::kOffload};
}

std::optional<Selection::Source> Selection::source_of_op(OpId op) const {
  const std::vector<Choice>& choices = problem_.choices(op);
  const std::uint8_t now = least_choice_[op];
  if (now >= problem_.last_choice(op)) {
    return std::nullopt;
  }
  return Source{.seconds = choices[now + 1].seconds - choices[now].seconds,
                .begin = op,
                .end = op + 1,
                .bytes = choices[now].workspace_bytes - choices[now + 1].workspace_bytes,
                .algorithm = true,
                .index = op,
                .before = now};
}

// Uses a source. Returns false if the value would exceed the page-locked memory.
bool Selection::take(const Source& source) {
  if (source.algorithm) {
    least_choice_[source.index] = static_cast<std::uint8_t>(source.before + 1);
  } else {
    const Gap& gap = problem_.gaps()[source.index];
    if (source.fate == Fate::kOffload && !on_host(gap)) {
      const std::uint64_t bytes = problem_.tape().value(gap.value).bytes;
      if (offloaded_bytes_ + bytes > host_bytes_) {
        return false;
      }
      offloaded_bytes_ += bytes;
    }
    fates_[source.index] = source.fate;
  }
  excess_.raise(source.begin, source.end, -static_cast<std::int64_t>(source.bytes));
  return true;
}

// Gives sources back that later sources have made needless, the most expensive first.
void Selection::give_back(std::vector<Source>& taken) {
  std::ranges::stable_sort(taken, std::ranges::greater(), &Source::seconds);
  for (const Source& source : taken) {
    const auto bytes = static_cast<std::int64_t>(source.bytes);
    const bool last_step = !source.algorithm || least_choice_[source.index] == source.before + 1;
    if (last_step && excess_.greatest(source.begin, source.end) + bytes <= 0) {
      excess_.raise(source.begin, source.end, bytes);
      if (source.algorithm) {
        least_choice_[source.index] = source.before;
      } else {
        fates_[source.index] = Fate::kKeep;
      }
    }
  }
}

void Selection::count_excess(const SelectionRule& rule, std::uint64_t bytes,
                             const std::vector<std::uint64_t>& too_much) {
  demand_.resize(problem_.slots());
  for (OpId slot = 0; slot < problem_.slots(); ++slot) {
    std::uint64_t workspace = problem_.least_workspace(slot);
    if (rule.fast_algorithms && without_main_[slot] < bytes) {
      for (const Choice& choice : problem_.choices(slot)) {
        if (choice.workspace_bytes <= bytes - without_main_[slot]) {
          workspace = choice.workspace_bytes;
          break;
        }
      }
    }
    demand_[slot] = static_cast<std::int64_t>(problem_.resident_bytes()[slot] + workspace + too_much[slot]) -
                    static_cast<std::int64_t>(bytes);
  }
  excess_.assign(demand_);
}

bool Selection::helps(const Gap& gap) const {
  return excess_.greatest(gap.last_before + 1, gap.first_after) > 0;
}

void Selection::evict(std::uint32_t index, Fate fate) {
  const Gap& gap = problem_.gaps()[index];
  fates_[index] = fate;
  evicted_.push_back(index);
  excess_.raise(gap.last_before + 1, gap.first_after, -static_cast<std::int64_t>(gap.freed_bytes));
}

void Selection::offload(double link_seconds) {
  const std::vector<Gap>& gaps = problem_.gaps();
  for (std::uint32_t index = 0; index < gaps.size() && excess_.greatest() > 0; ++index) {
    const Gap& gap = gaps[index];
    const std::uint64_t bytes = problem_.tape().value(gap.value).bytes;
    if (gap.main && fates_[index] == Fate::kKeep && link_seconds_ + gap.offload_seconds <= link_seconds &&
        offloaded_bytes_ + bytes <= host_bytes_ && helps(gap)) {
      evict(index, Fate::kOffload);
      offloaded_bytes_ += bytes;
      link_seconds_ += gap.offload_seconds;
    }
  }
}

void Selection::recompute(double most) {
  for (const std::uint32_t index : by_price_) {
    const Gap& gap = problem_.gaps()[index];
    if (price(gap) > most || excess_.greatest() <= 0) {
      return;
    }
    if (fates_[index] == Fate::kKeep && !checkpoint_[index] && helps(gap)) {
      evict(index, Fate::kRecompute);
    }
  }
}

bool Selection::on_host(const Gap& gap) const {
  const auto [begin, end] = problem_.gaps_of(gap.value);
  return std::any_of(fates_.begin() + begin, fates_.begin() + end,
                     [](Fate fate) { return fate == Fate::kOffload; });
}

// If slots still lack memory, evicts values between two uses in the same pass. Without `recompute_if_faster`,
// a value is recomputed only if page-locked memory has no room for it. Recomputations need memory for their
// operands, so a rule that only offloads needs the least.
void Selection::evict_minor(bool recompute_if_faster) {
  for (const std::uint32_t index : minor_) {
    if (excess_.greatest() <= 0) {
      return;
    }
    const Gap& gap = problem_.gaps()[index];
    if (!helps(gap)) {
      continue;
    }
    const bool copied = on_host(gap);
    const std::uint64_t bytes = copied ? 0 : problem_.tape().value(gap.value).bytes;
    const double moved = gap.prefetch_seconds + (copied ? 0 : gap.offload_seconds);
    const bool has_place = offloaded_bytes_ + bytes <= host_bytes_;
    if (gap.may_recompute && (!has_place || (recompute_if_faster && gap.recompute_seconds < moved))) {
      evict(index, Fate::kRecompute);
    } else if (has_place) {
      evict(index, Fate::kOffload);
      offloaded_bytes_ += bytes;
    }
  }
}

// Undoes evictions that later evictions have made needless.
void Selection::keep_what_fits() {
  for (const std::uint32_t index : evicted_) {
    const Gap& gap = problem_.gaps()[index];
    const auto bytes = static_cast<std::int64_t>(gap.freed_bytes);
    if (excess_.greatest(gap.last_before + 1, gap.first_after) + bytes <= 0) {
      excess_.raise(gap.last_before + 1, gap.first_after, bytes);
      fates_[index] = Fate::kKeep;
    }
  }
}

}  // namespace vdnn::optimal
