#include "src/report/counterfactual.h"

#include <algorithm>
#include <utility>

#include "src/plan/optimal/arrangement.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/recomputation.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// A gap between two ops in which a value is not used.
struct UseGap {
  OpId before = kNone;  // kNone: an input that no forward op reads
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

}  // namespace

OpId launch_after(const Schedule& schedule, std::uint32_t instruction) {
  const auto launch =
      std::find_if(schedule.instructions.begin() + instruction, schedule.instructions.end(),
                   [](const Instruction& each) { return each.kind == InstructionKind::kLaunch; });
  return launch == schedule.instructions.end() ? kNone : launch->launched_op();
}

std::string why_undecided(const PlannedRun& run, ValueId value) {
  const Tape& tape = *run.tape;
  if (tape.value(value).persistent()) {
    return "parameters and the optimizer's state stay on the device";
  }
  if (!is_made_in_forward(tape, value)) {
    return "it is made after the forward pass, and released after its last use";
  }
  const UseGap gap = gap_of(tape, value);
  if (gap.after == kNone) {
    return "the backward pass does not read it";
  }
  if (run.plan.network_wide) {
    return "policy baseline keeps all memory throughout the step";
  }
  if (gap.before == kNone || gap.after < gap.before + 2) {
    return tape.op(gap.after).name + " needs it right after its last use in the forward pass";
  }
  return "";
}

namespace {

Counterfactual outcome_of(const PlannedRun& run, const Prediction& prediction) {
  const std::uint64_t needed = prediction.peak_bytes + run.target.library_bytes;
  return {.impossible = {},
          .peak_bytes = prediction.peak_bytes,
          .host_bytes = prediction.host_bytes,
          .fits = needed <= run.target.budget_bytes && prediction.host_bytes <= run.target.host_budget_bytes,
          .missing_bytes = needed - std::min(needed, run.target.budget_bytes),
          .step_seconds = prediction.step_seconds};
}

// The part of the device budget that is left for non-persistent buffers.
std::uint64_t room_for_arena(const PlannedRun& run, const optimal::Problem& problem) {
  return problem.room_beside_persistent(run.target.budget_bytes -
                                        std::min(run.target.budget_bytes, run.target.library_bytes));
}

// Prefers a plan that fits, then the faster one, then the one with the lower peak.
bool is_better(const Counterfactual& one, const Counterfactual& other) {
  if (!other.impossible.empty() || one.fits != other.fits) {
    return one.fits || !other.impossible.empty();
  }
  if (one.fits && one.step_seconds != other.step_seconds) {
    return one.step_seconds < other.step_seconds;
  }
  return one.peak_bytes < other.peak_bytes;
}

Counterfactual predict_schedule(const PlannedRun& run, const Schedule& schedule) {
  PredictionOptions options = prediction_options(run);
  options.trace = false;
  require_valid(*run.tape, schedule);
  return outcome_of(run, predict(*run.tape, schedule, options));
}

// Predicts the plan with addresses like those of the plan in force, and with addresses from the search of
// `optimal`, and returns the better prediction. If none fits, values give way in further ways
// (src/plan/optimal/arrangement.h). The search tries both the whole budget and the arena of the plan in
// force, since that plan may have its addresses from a search in less memory.
Counterfactual predict_arranged(const PlannedRun& run, const Plan& plan) {
  const PlanCosts costs = plan_costs(*run.tape, prediction_options(run));
  const optimal::Problem problem(*run.tape, run.plan.options, costs);
  const bool may_give_way =
      !plan.transfers.empty() && std::ranges::all_of(plan.transfers, [&](const Transfer& transfer) {
        return problem.gap_at(transfer.value, transfer.prefetch_with) != kNone;
      });
  const std::uint64_t room = room_for_arena(run, problem);
  Counterfactual best{.impossible = "no addresses were found"};
  Placements placements;
  if (const auto schedule = optimal::arrange_as_before(problem, plan, run.schedule, placements, room)) {
    best = predict_schedule(run, *schedule);
  }
  for (const optimal::GiveWay give_way : optimal::kWaysToGive) {
    for (const std::uint64_t goal : {room, std::min(room, run.schedule.arena_bytes)}) {
      Plan arranged = plan;
      Counterfactual outcome = predict_schedule(
          run,
          optimal::arrange(problem, arranged, {.from = problem.load_slot()}, goal, give_way, placements));
      if (is_better(outcome, best)) {
        best = std::move(outcome);
      }
    }
    if (best.fits || !may_give_way) {
      break;
    }
  }
  return best;
}

Counterfactual predict_plan(const PlannedRun& run, const Plan& plan) {
  return run.schedule.arena_bytes > 0 && !plan.network_wide
             ? predict_arranged(run, plan)
             : predict_schedule(run, make_schedule(*run.tape, plan));
}

// Predicts the plan, or reports why it has no schedule or why the checker refuses its schedule.
Counterfactual try_plan(const PlannedRun& run, const Plan& plan) {
  try {
    return predict_plan(run, plan);
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

// The last op at which the copy back can start in time.
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
    return try_plan(run, plan);
  };
  const OpId late = prefetch_start(run, value, gap);
  Counterfactual result = fetched_with(late);
  // Values recomputed from this value may need it earlier.
  if (const OpId early = std::max(gap.before + 1, run.tape->forward_ops());
      !result.impossible.empty() && early < late) {
    result = fetched_with(early);
  }
  return result;
}

// The first op in the gap for which another value is recomputed from this one; kNone: there is none.
OpId first_made_from(const PlannedRun& run, ValueId value, const UseGap& gap) {
  const std::vector<Instruction>& instructions = run.schedule.instructions;
  for (std::uint32_t index = 0; index < instructions.size(); ++index) {
    if (instructions[index].kind != InstructionKind::kRecompute) {
      continue;
    }
    const std::vector<ValueId>& reads = run.tape->op(instructions[index].op).reads;
    const OpId with = launch_after(run.schedule, index);
    if (with > gap.before && std::ranges::find(reads, value) != reads.end()) {
      return with;
    }
  }
  return kNone;
}

Counterfactual recomputed(const PlannedRun& run, ValueId value) {
  const OpId producer = run.tape->producer(value);
  if (producer == kNone) {
    return {.impossible = "it is loaded, not computed"};
  }
  if (!may_run_again(*run.tape, producer)) {
    return {.impossible = run.tape->op(producer).name + " changes a value that outlives the step"};
  }
  const UseGap gap = gap_of(*run.tape, value);
  const auto made_again_with = [&](OpId op) {
    Plan plan = undecided(run, value);
    plan.recomputations.push_back({.value = value, .with = op});
    return try_plan(run, plan);
  };
  Counterfactual result = made_again_with(gap.after);
  if (const OpId early = first_made_from(run, value, gap); early < gap.after) {
    const Counterfactual sooner = made_again_with(early);
    result = sooner.impossible.empty() && is_better(sooner, result) ? sooner : result;
  }
  return result;
}

}  // namespace

Counterfactual as_planned(const PlannedRun& run) {
  return outcome_of(run, run.prediction);
}

std::optional<Counterfactual> remade(const PlannedRun& run) {
  Counterfactual outcome = try_plan(run, run.plan);
  const bool same = outcome.impossible.empty() && outcome.step_seconds == run.prediction.step_seconds &&
                    outcome.peak_bytes == run.prediction.peak_bytes &&
                    outcome.host_bytes == run.prediction.host_bytes;
  return same ? std::nullopt : std::optional(std::move(outcome));
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
  return try_plan(run, plan);
}

}  // namespace vdnn
