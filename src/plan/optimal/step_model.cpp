#include "src/plan/optimal/step_model.h"

#include <algorithm>

namespace vdnn::optimal {

namespace {

// The rounding error of sums over some thousand ops that are added in another order.
constexpr double kSumError = 1e-12;

}  // namespace

StepModel::StepModel(const Problem& problem)
    : problem_(problem), recomputation_finder_(problem), algorithm_chooser_(problem), step_timer_(problem) {}

Outcome StepModel::evaluate(const Decisions& decisions, std::uint64_t bytes, double slack, double longest) {
  const Room room{.bytes = bytes,
                  .soft_bytes = bytes - static_cast<std::uint64_t>(slack * static_cast<double>(bytes))};
  decisions_ = &decisions;
  recomputations_ = &recomputation_finder_.find(decisions.fates);
  if (recomputations_->impossible_gap != kNone) {
    return {.impossible_gap = recomputations_->impossible_gap};
  }
  algorithms_ = &algorithm_chooser_.choose(decisions, *recomputations_, room);
  if (!algorithms_->shortages.empty()) {
    return {.shortages = algorithms_->shortages};
  }
  timing_ = &step_timer_.time({.fates = decisions.fates,
                               .recomputations = *recomputations_,
                               .algorithms = *algorithms_,
                               .bytes = room.soft_bytes,
                               .longest = longest * (1 + kSumError)});
  return {.seconds = timing_->seconds, .host_bytes = timing_->host_bytes};
}

std::vector<bool> StepModel::tight() const {
  std::vector<bool> slots = algorithms_->stepped_down;
  for (const OpId slot : timing_->held_up) {
    slots[slot] = true;
  }
  return slots;
}

// The gaps whose values are recomputed at the slot, for their own next use or to recompute another value.
std::vector<std::uint32_t> StepModel::recomputed_at(OpId slot) const {
  std::vector<std::uint32_t> gaps;
  const std::vector<LaunchedAgain>& launches = recomputations_->launches;
  for (auto again = std::ranges::lower_bound(launches, slot, {}, &LaunchedAgain::slot);
       again != launches.end() && again->slot == slot; ++again) {
    for (const ValueId value : problem_.tape().op(again->op).writes) {
      const std::uint32_t gap = problem_.gap_at(value, slot);
      if (gap != kNone && is_recomputed(decisions_->fates[gap])) {
        gaps.push_back(gap);
      }
    }
  }
  return gaps;
}

bool StepModel::relieve(const std::vector<Shortage>& shortages, Decisions& decisions,
                        std::minstd_rand& random) const {
  bool any = false;
  for (const Shortage& shortage : shortages) {
    const std::vector<std::uint32_t> gaps = recomputed_at(shortage.slot);
    bool early = false;
    for (const std::uint32_t gap : gaps) {
      if (decisions_->fates[gap] == Fate::kRecompute && recomputations_->back[gap] == shortage.slot &&
          problem_.gaps()[gap].first_after > shortage.slot) {
        decisions.fates[gap] = Fate::kRemake;
        early = true;
      }
    }
    if (!early && !gaps.empty()) {
      decisions.fates[gaps[random() % gaps.size()]] = Fate::kOffload;
    }
    any = any || !gaps.empty();
  }
  return any;
}

void StepModel::write(Plan& plan) const {
  const std::vector<Gap>& gaps = problem_.gaps();
  plan.algorithms.clear();
  for (OpId op = 0; op < problem_.slots(); ++op) {
    plan.algorithms.push_back(problem_.choices(op)[choice(op)].algorithm);
  }
  plan.transfers.clear();
  plan.recomputations.clear();
  std::vector<OpId> copied_with(gaps.size(), kNone);
  for (const CopyToHost& copy : timing_->copies) {
    copied_with[copy.gap] = copy.slot;
  }
  for (std::uint32_t gap = 0; gap < gaps.size(); ++gap) {
    const ValueId value = gaps[gap].value;
    const Fate fate = decisions_->fates[gap];
    if (fate == Fate::kOffload) {
      plan.transfers.push_back({.value = value,
                                .offload_with = copied_with[gap],
                                .release_with = timing_->release[gap],
                                .prefetch_with = timing_->prefetch[gap]});
    } else if (is_recomputed(fate)) {
      plan.recomputations.push_back({.value = value, .with = recomputations_->back[gap]});
    }
  }
}

}  // namespace vdnn::optimal
