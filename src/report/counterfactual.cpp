#include "src/report/counterfactual.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/plan/lowering.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn {

std::string to_string(ValueDecision decision) {
  constexpr std::array<const char*, 4> kNames{"undecided", "kept", "offloaded", "recomputed"};
  return kNames[static_cast<std::size_t>(decision)];
}

namespace {

// A value is not used between two ops.
struct UseGap {
  OpId before = kNone;  // kNone: it is loaded, and the backward pass reads it first
  OpId after = kNone;   // kNone: the backward pass does not read it
};

UseGap gap_of(const Tape& tape, ValueId value) {
  UseGap gap{.before = tape.producer(value)};
  for (const OpId reader : tape.readers(value)) {
    if (tape.op(reader).phase != Phase::kForward) {
      gap.after = reader;
      break;
    }
    gap.before = reader;
  }
  return gap;
}

bool is_made_in_forward(const Tape& tape, ValueId value) {
  const OpId producer = tape.producer(value);
  return tape.value(value).loaded() || (producer != kNone && tape.op(producer).phase == Phase::kForward);
}

}  // namespace

std::string why_undecided(const PlannedRun& run, ValueId value) {
  const Tape& tape = *run.tape;
  if (tape.value(value).persistent()) {
    return "parameters and the optimizer's state stay on the device";
  }
  if (!is_made_in_forward(tape, value)) {
    return "it is made after the forward pass, and given back after its last use";
  }
  const UseGap gap = gap_of(tape, value);
  if (gap.after == kNone) {
    return "the backward pass does not need it: it is given back after its last use";
  }
  if (run.plan.network_wide) {
    return "policy baseline allocates everything for good";
  }
  if (gap.before == kNone || gap.after < gap.before + 2) {
    return tape.op(gap.after).name + " needs it right after its last use in the forward pass";
  }
  return "";
}

ValueDecision decision_of(const PlannedRun& run, ValueId value) {
  if (std::ranges::find(run.plan.transfers, value, &Transfer::value) != run.plan.transfers.end()) {
    return ValueDecision::kOffloaded;
  }
  if (std::ranges::find(run.plan.recomputations, value, &Recomputation::value) !=
      run.plan.recomputations.end()) {
    return ValueDecision::kRecomputed;
  }
  return why_undecided(run, value).empty() ? ValueDecision::kKept : ValueDecision::kUndecided;
}

namespace {

Counterfactual predict_plan(const PlannedRun& run, Plan plan) {
  PredictionOptions options = prediction_options(run);
  options.trace = false;
  if (run.schedule.arena_bytes > 0) {
    plan.placement_alignment = plan_costs(*run.tape, options).alignment_bytes;
  }
  const Schedule schedule = make_schedule(*run.tape, plan);
  require_valid(*run.tape, schedule);
  const Prediction prediction = predict(*run.tape, schedule, options);
  const std::uint64_t needed = prediction.peak_bytes + run.target.library_bytes;
  return {.impossible = {},
          .peak_bytes = prediction.peak_bytes,
          .host_bytes = prediction.host_bytes,
          .fits = needed <= run.target.budget_bytes && prediction.host_bytes <= run.target.host_budget_bytes,
          .missing_bytes = needed - std::min(needed, run.target.budget_bytes),
          .step_seconds = prediction.step_seconds};
}

// What cannot be lowered or is not right says why.
Counterfactual try_plan(const PlannedRun& run, Plan plan) {
  try {
    return predict_plan(run, std::move(plan));
  } catch (const InvalidArgument& error) {
    return {.impossible = error.what()};
  } catch (const ScheduleError& error) {
    return {.impossible = error.what()};
  }
}

Plan undecided(const PlannedRun& run, ValueId value) {
  Plan plan = run.plan;
  std::erase_if(plan.transfers, [&](const Transfer& transfer) { return transfer.value == value; });
  std::erase_if(plan.recomputations,
                [&](const Recomputation& recomputation) { return recomputation.value == value; });
  return plan;
}

// The last op from which on there is time for the copy back.
OpId prefetch_start(const PlannedRun& run, ValueId value, const UseGap& gap) {
  const PlanCosts costs = plan_costs(*run.tape, prediction_options(run));
  double missing =
      costs.copy_seconds + static_cast<double>(run.tape->value(value).bytes) / costs.host_to_device;
  OpId start = gap.after;
  while (missing > 0 && start > gap.before + 1) {
    --start;
    missing -= costs.op_seconds[start][run.plan.algorithms[start]];
  }
  return start;
}

Counterfactual offloaded(const PlannedRun& run, ValueId value) {
  const UseGap gap = gap_of(*run.tape, value);
  const OpId producer = run.tape->producer(value);
  const auto fetched_with = [&](OpId op) {
    Plan plan = undecided(run, value);
    plan.transfers.push_back({.value = value,
                              .offload_with = producer == kNone ? run.tape->readers(value).front() : producer,
                              .release_with = gap.before,
                              .prefetch_with = op});
    std::ranges::stable_sort(plan.transfers, {}, &Transfer::offload_with);
    return try_plan(run, std::move(plan));
  };
  const OpId late = prefetch_start(run, value, gap);
  Counterfactual result = fetched_with(late);
  // What is recomputed from it may want it sooner.
  if (const OpId early = std::max(gap.before + 1, run.tape->forward_ops());
      !result.impossible.empty() && early < late) {
    result = fetched_with(early);
  }
  return result;
}

Counterfactual recomputed(const PlannedRun& run, ValueId value) {
  const OpId producer = run.tape->producer(value);
  if (producer == kNone) {
    return {.impossible = "it is loaded, not computed"};
  }
  if (!may_run_again(*run.tape, producer)) {
    return {.impossible = run.tape->op(producer).name + " changes what outlives the step"};
  }
  Plan plan = undecided(run, value);
  plan.recomputations.push_back({.value = value, .with = gap_of(*run.tape, value).after});
  return try_plan(run, std::move(plan));
}

}  // namespace

Counterfactual as_planned(const PlannedRun& run) {
  return predict_plan(run, run.plan);
}

Counterfactual decided_otherwise(const PlannedRun& run, ValueId value, ValueDecision decision) {
  if (const std::string reason = why_undecided(run, value);
      !reason.empty() || decision == ValueDecision::kUndecided) {
    throw InvalidArgument(run.tape->value(value).name + ": there is nothing to decide: " + reason);
  }
  switch (decision) {
    case ValueDecision::kOffloaded:
      return offloaded(run, value);
    case ValueDecision::kRecomputed:
      return recomputed(run, value);
    default:
      return try_plan(run, undecided(run, value));
  }
}

Counterfactual computed_otherwise(const PlannedRun& run, OpId op, std::uint32_t algorithm) {
  Plan plan = run.plan;
  plan.algorithms.at(op) = algorithm;
  return try_plan(run, std::move(plan));
}

}  // namespace vdnn
