#include "src/plan/optimal/selection.h"

#include <algorithm>
#include <limits>

namespace vdnn::optimal {

namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

double price(const Gap& gap) {
  return gap.recompute_seconds / (gap.offload_seconds + gap.prefetch_seconds);
}

}  // namespace

std::vector<Recipe> recipes() {
  std::vector<Recipe> all;
  for (const bool fast : {true, false}) {
    for (const double share : {0.0, 0.1, 0.25, 0.5, 0.8, 1.0, 1.3, kAny}) {
      all.push_back({.link_share = share, .fast_algorithms = fast});
    }
    for (const double price : {0.1, 0.4, 1.0}) {
      all.push_back({.recompute_price = price, .link_share = kAny, .fast_algorithms = fast});
    }
    for (const double checkpoints : {0.08, 0.2, 0.5}) {
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
  return all;
}

Selection::Selection(const Problem& problem, std::uint64_t host_bytes)
    : problem_(problem), host_bytes_(host_bytes) {
  const std::vector<Gap>& gaps = problem.gaps();
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    if (gaps[gap].may_recompute) {
      by_price_.push_back(gap);
    }
  }
  std::ranges::stable_sort(by_price_, {}, [&](std::uint32_t gap) { return price(gaps[gap]); });
  for (OpId op = 0; op < problem.tape().forward_ops(); ++op) {
    forward_seconds_ += problem.fastest(op);
  }
  std::vector<std::int64_t> change(problem.slots() + 1, 0);
  for (const Gap& gap : gaps) {
    change[gap.last_before + 1] -= static_cast<std::int64_t>(gap.freed_bytes);
    change[gap.first_after] += static_cast<std::int64_t>(gap.freed_bytes);
  }
  std::int64_t gone = 0;
  for (std::size_t slot = 0; slot < problem.slots(); ++slot) {
    gone += change[slot];
    unavoidable_.push_back(
        static_cast<std::uint64_t>(static_cast<std::int64_t>(problem.resident_bytes()[slot]) + gone));
  }
}

std::uint64_t Selection::least_bytes() const {
  std::uint64_t least = 0;
  for (OpId slot = 0; slot < problem_.slots(); ++slot) {
    least = std::max(least, unavoidable_[slot] + problem_.least_workspace(slot));
  }
  return least;
}

Fates Selection::select(const Recipe& recipe, std::uint64_t bytes,
                        const std::vector<std::uint64_t>& too_much) {
  const std::vector<Gap>& gaps = problem_.gaps();
  fates_.assign(gaps.size(), Fate::kKeep);
  evicted_.clear();
  offloaded_bytes_ = 0;
  link_seconds_ = 0;
  count_excess(recipe, bytes, too_much);
  checkpoint_.assign(gaps.size(), false);
  if (recipe.checkpoint_share > 0) {
    std::uint64_t chain = 0;
    for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
      chain += gaps[gap].bytes;
      const bool possible = gaps[gap].cut || !recipe.checkpoint_at_cuts;
      if (possible && static_cast<double>(chain) >= recipe.checkpoint_share * static_cast<double>(bytes)) {
        checkpoint_[gap] = true;
        chain = 0;
      }
    }
  }
  recompute(recipe.recompute_price);
  offload(recipe.link_share * forward_seconds_);
  recompute(kAny);
  offload(kAny);
  keep_what_fits();
  return fates_;
}

void Selection::count_excess(const Recipe& recipe, std::uint64_t bytes,
                             const std::vector<std::uint64_t>& too_much) {
  demand_.resize(problem_.slots());
  for (OpId slot = 0; slot < problem_.slots(); ++slot) {
    std::uint64_t workspace = problem_.least_workspace(slot);
    if (recipe.fast_algorithms && unavoidable_[slot] < bytes) {
      for (const Choice& choice : problem_.choices(slot)) {
        if (choice.workspace_bytes <= bytes - unavoidable_[slot]) {
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
    if (fates_[index] == Fate::kKeep && link_seconds_ + gap.offload_seconds <= link_seconds &&
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

// Later evictions may have made earlier ones needless.
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
