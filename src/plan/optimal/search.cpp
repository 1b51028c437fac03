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

// Slots looked at for all sizes: by all recipes, and by all improvements of a kind. They bound the time of
// the search for tapes of any length but those so long that the fewest sizes take more.
constexpr std::size_t kRecipeSlots = 2'000'000;
constexpr std::size_t kSegmentSlots = 2'000'000;
constexpr std::size_t kImprovementSlots = 5'000'000;
constexpr std::size_t kFewestSizes = 6;
constexpr std::size_t kMostSizes = 200;

constexpr std::array kFates{Fate::kKeep, Fate::kRecompute, Fate::kOffload};

// Two choices of one hash cost no more than that one of them is not looked at.
std::size_t hash_of(const Fates& fates) {
  static_assert(sizeof(Fate) == 1);
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(fates.data()), fates.size()});
}

constexpr int kAttempts = 6;  // of a recipe, each time with what the last one lacked

}  // namespace

Search::Search(const Problem& problem, std::uint64_t host_bytes)
    : problem_(problem), host_bytes_(host_bytes), layout_(problem), selection_(problem, host_bytes) {
  const std::size_t slots = std::max<std::size_t>(problem.slots(), 1);
  size_count_ = std::clamp(kRecipeSlots / (slots * recipes().size()), kFewestSizes, kMostSizes);
  segment_tries_ = kSegmentSlots / (slots * size_count_);
  tries_ = kImprovementSlots / (slots * size_count_);
  segments_.push_back(0);
  for (std::uint32_t gap = 0; gap < problem.gaps().size(); ++gap) {
    if (problem.gaps()[gap].cut) {
      segments_.push_back(gap + 1);
    }
  }
  segments_.push_back(static_cast<std::uint32_t>(problem.gaps().size()) + 1);
}

// From what any plan takes to what keeping everything with the fastest algorithms takes, in equal ratios: the
// tighter memory is, the more a little more of it changes.
std::vector<std::uint64_t> Search::sizes() const {
  const std::uint64_t least = selection_.least_bytes();
  const std::uint64_t most = std::max(least, problem_.most_bytes());
  const double ratio = static_cast<double>(most) / static_cast<double>(std::max<std::uint64_t>(least, 1));
  std::vector<std::uint64_t> result;
  for (std::size_t each = 0; each <= size_count_; ++each) {
    const double share = static_cast<double>(each) / static_cast<double>(size_count_);
    result.push_back(each == size_count_
                         ? most
                         : static_cast<std::uint64_t>(static_cast<double>(least) * std::pow(ratio, share)));
  }
  // Whole granules are committed: what is left of the last one is free.
  const std::uint64_t fixed = problem_.persistent_bytes();
  for (std::uint64_t& bytes : result) {
    bytes = round_up(fixed + bytes, problem_.costs().granule_bytes) - fixed;
  }
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<Found> Search::run() {
  std::vector<Found> all;
  const std::vector<Recipe> every = recipes();
  for (const std::uint64_t bytes : sizes()) {
    Found best{.bytes = bytes, .fates = {}, .seconds = kNever};
    seen_.clear();
    if (!all.empty()) {
      try_fates(all.back().fates, best);  // what fits in less
    }
    for (const Recipe& recipe : every) {
      try_recipe(recipe, best);
    }
    if (best.seconds < kNever) {
      offload_inputs(best);
      improve(best);
      all.push_back(std::move(best));
    }
  }
  return all;
}

void Search::try_recipe(const Recipe& recipe, Found& best) {
  too_much_.assign(problem_.slots(), 0);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Fates fates = selection_.select(recipe, best.bytes, too_much_);
    if (!seen_.insert(hash_of(fates)).second) {
      return;
    }
    const Outcome outcome = layout_.evaluate(fates, best.bytes);
    if (outcome.feasible()) {
      if (outcome.seconds < best.seconds) {
        best.seconds = outcome.seconds;
        best.fates = fates;
      }
      return;
    }
    if (outcome.impossible_gap != kNone) {
      return;
    }
    for (const Shortage& shortage : outcome.shortages) {
      too_much_[shortage.slot] += shortage.bytes;
    }
  }
}

void Search::try_fates(const Fates& fates, Found& best) {
  const Outcome outcome = layout_.evaluate(fates, best.bytes);
  if (outcome.feasible() && outcome.host_bytes <= host_bytes_ && outcome.seconds < best.seconds) {
    best.seconds = outcome.seconds;
    best.fates = fates;
  }
}

bool Search::may_have(std::uint32_t gap, Fate fate) const {
  return fate != Fate::kRecompute || problem_.gaps()[gap].may_recompute;
}

bool Search::change(Found& best, std::uint32_t gap, Fate fate) {
  if (best.fates[gap] == fate || !may_have(gap, fate)) {
    return false;
  }
  const double before = best.seconds;
  Fates fates = best.fates;
  fates[gap] = fate;
  try_fates(fates, best);
  return best.seconds < before;
}

// Even where there is memory for them: the next step's can then be loaded while this one computes.
void Search::offload_inputs(Found& best) {
  for (const ValueId input : problem_.tape().inputs()) {
    if (const std::uint32_t gap = problem_.gap_of(input); gap != kNone) {
      change(best, gap, Fate::kOffload);
    }
  }
}

// As long as there is something to be won and tries are left.
void Search::improve(Found& best) {
  improve_by_segments(best);
  std::size_t tries = tries_;
  while (tries > 0 && (improve_one_by_one(best, tries) || improve_in_pairs(best, tries))) {
  }
}

// What lies between two cuts is made again together, or pays together. Where tries are fewer, the next size
// goes on where this one stops.
void Search::improve_by_segments(Found& best) {
  std::size_t tries = segment_tries_;
  const std::size_t count = segments_.size() - 1;
  for (std::size_t each = 0; each < count && tries > 0; ++each, next_segment_ = (next_segment_ + 1) % count) {
    const std::size_t segment = next_segment_;
    for (const Fate fate : kFates) {
      std::vector<std::uint32_t> changed;
      for (std::uint32_t gap = segments_[segment]; gap + 1 < segments_[segment + 1]; ++gap) {
        if (best.fates[gap] != fate && may_have(gap, fate)) {
          changed.push_back(gap);
        }
      }
      if (!changed.empty()) {
        Fates fates = best.fates;
        for (const std::uint32_t gap : changed) {
          fates[gap] = fate;
        }
        try_fates(fates, best);
        tries -= std::min<std::size_t>(tries, 1);
      }
    }
  }
}

bool Search::improve_one_by_one(Found& best, std::size_t& tries) {
  bool better = false;
  for (std::uint32_t gap = 0; gap < best.fates.size() && tries > 0; ++gap) {
    for (const Fate fate : kFates) {
      better = change(best, gap, fate) || better;
      tries -= tries > 0 ? 1 : 0;
    }
  }
  return better;
}

// One value makes room for another.
bool Search::improve_in_pairs(Found& best, std::size_t& tries) {
  const double before = best.seconds;
  for (std::uint32_t one = 0; one < best.fates.size(); ++one) {
    for (std::uint32_t other = 0; other < one; ++other) {
      for (std::size_t both = 0; both < kFates.size() * kFates.size() && tries > 0; ++both) {
        Fates fates = best.fates;
        fates[one] = kFates[both / kFates.size()];
        fates[other] = kFates[both % kFates.size()];
        if (fates[one] != best.fates[one] && fates[other] != best.fates[other] && may_have(one, fates[one]) &&
            may_have(other, fates[other])) {
          try_fates(fates, best);
          --tries;
        }
      }
    }
  }
  return best.seconds < before;
}

}  // namespace vdnn::optimal
