#pragma once
// Random plans, for any tape, in which values have several lives per step.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::testing {

// Decides for each gap between two uses whether the value is kept, offloaded or recomputed, at random times.
// The planner withdraws a decision with which the plan cannot be lowered.
class LivesPlanner {
 public:
  LivesPlanner(const Tape& tape, std::uint64_t seed)
      : tape_(tape), random_(seed), plan_(make_plan(tape, {.policy = Policy::kOffloadNone})) {}

  Plan plan() && {
    std::vector<ValueId> values(tape_.values().size());
    std::iota(values.begin(), values.end(), 0U);
    for (std::size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[random_.below(left)]);
    }
    for (const ValueId value : values) {
      if (!tape_.value(value).persistent()) {
        decide(value);
      }
    }
    return std::move(plan_);
  }

 private:
  void decide(ValueId value) {
    const OpId producer = tape_.producer(value);
    OpId born = producer == kNone ? 0 : producer;  // start of the current life
    bool copied = false;
    std::optional<OpId> before = producer == kNone ? std::nullopt : std::optional(producer);
    for (const OpId after : tape_.readers(value)) {
      if (before && after > *before) {
        decide(value, *before, after, born, copied);
      }
      before = after;
    }
  }

  // Decides the gap between two uses. If one of offload and recompute is impossible, the other may work.
  void decide(ValueId value, OpId before, OpId after, OpId& born, bool& copied) {
    const auto choice = random_.below(5);
    if (choice == 0) {
      return;
    }
    const bool away = choice > 2;
    const bool possible =
        away ? send_away(value, before, after, born, copied) : make_again(value, before, after, born);
    if (!possible) {
      away ? make_again(value, before, after, born) : send_away(value, before, after, born, copied);
    }
  }

  bool send_away(ValueId value, OpId before, OpId after, OpId& born, bool& copied) {
    if (after == before + 1) {
      return false;
    }
    const OpId release = between(before, after - 1);
    const bool anew = !copied || random_.below(4) == 0;
    const OpId prefetch = between(release + 1, after);
    plan_.transfers.push_back({.value = value,
                               .offload_with = anew ? between(born, release) : kNone,
                               .release_with = release,
                               .prefetch_with = prefetch});
    const bool possible = keep_if_possible(plan_.transfers);
    born = possible ? prefetch : born;
    copied = copied || possible;
    return possible;
  }

  bool make_again(ValueId value, OpId before, OpId after, OpId& born) {
    const OpId with = between(before + 1, after);
    plan_.recomputations.push_back({.value = value, .with = with});
    const bool possible = keep_if_possible(plan_.recomputations);
    born = possible ? with : born;
    return possible;
  }

  OpId between(OpId first, OpId last) {
    return first + static_cast<OpId>(random_.below(std::uint64_t{last} - first + 1));
  }

  // Withdraws the latest of these decisions if the plan cannot be lowered.
  template <class Decision>
  bool keep_if_possible(std::vector<Decision>& decisions) {
    try {
      make_schedule(tape_, plan_);
      return true;
    } catch (const InvalidArgument&) {
      decisions.pop_back();
      return false;
    }
  }

  const Tape& tape_;
  SplitMix64 random_;
  Plan plan_;
};

inline Plan lives_plan(const Tape& tape, std::uint64_t seed, std::uint64_t placement_alignment = 0) {
  Plan plan = LivesPlanner(tape, seed).plan();
  plan.placement_alignment = placement_alignment;
  return plan;
}

}  // namespace vdnn::testing
