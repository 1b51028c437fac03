#include "src/report/explanation.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "src/base/near_names.h"
#include "src/plan/residency.h"
#include "vdnn/option_error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
constexpr std::uint64_t kWithoutEnd = std::uint64_t{1} << 50U;  // bytes

PlanCosts costs_of(const PlannedRun& run) {
  return plan_costs(*run.tape, prediction_options(run));
}

Prediction traced_prediction(const PlannedRun& run) {
  if (run.prediction.step) {
    return run.prediction;
  }
  PredictionOptions options = prediction_options(run);
  options.trace = true;
  return predict(*run.tape, run.schedule, options);
}

DecisionCounts count_decisions(const PlannedRun& run, const PlanCosts& costs) {
  DecisionCounts counts;
  const std::vector<ValueDecision> decisions = decisions_of(*run.tape, run.schedule);
  for (ValueId value = 0; value < run.tape->values().size(); ++value) {
    const auto add = [&](CountedBytes& sum) {
      ++sum.count;
      sum.bytes += run.tape->value(value).bytes;
    };
    switch (decisions[value]) {
      case ValueDecision::kKept:
        add(counts.kept);
        break;
      case ValueDecision::kOffloaded:
        add(counts.offloaded);
        break;
      case ValueDecision::kRecomputed:
        add(counts.recomputed);
        break;
      case ValueDecision::kUndecided:
      case ValueDecision::kDropped:
        break;
    }
  }
  for (OpId op = 0; op < run.tape->ops().size(); ++op) {
    const std::vector<double>& seconds = costs.op_seconds[op];
    counts.slower_algorithms += seconds[run.plan.algorithms[op]] > std::ranges::min(seconds) ? 1 : 0;
  }
  return counts;
}

std::uint64_t saturated_sum(std::uint64_t one, std::uint64_t other) {
  return other > ~std::uint64_t{0} - one ? ~std::uint64_t{0} : one + other;
}

bool decides_by_budget(Policy policy) {
  return policy == Policy::kOptimal || policy == Policy::kDynamic;
}

OtherBudget in_budget(const PlannedRun& run, const PlanCosts& costs, std::uint64_t budget_bytes) {
  const PlannedRun other = plan_again(run, run.plan.options.policy, budget_bytes);
  return {.budget_bytes = budget_bytes,
          .fits = other.fits(),
          .peak_bytes = other.prediction.peak_bytes,
          .step_seconds = other.prediction.step_seconds,
          .decisions = count_decisions(other, costs)};
}

void look_at_more_memory(const PlannedRun& run, const PlanCosts& costs, Explanation& explanation) {
  explanation.unlimited_step_seconds = run.prediction.step_seconds;
  explanation.depends_on_budget = decides_by_budget(run.plan.options.policy);
  if (!explanation.depends_on_budget) {
    return;
  }
  explanation.unlimited_step_seconds = in_budget(run, costs, kWithoutEnd).step_seconds;
  const std::uint64_t base = std::max(run.target.budget_bytes, run.smallest_budget_bytes());
  std::vector<std::uint64_t> budgets;
  for (const std::uint64_t more : {base / 10, base / 4, base / 2, 2 * kGiB}) {
    const std::uint64_t budget = saturated_sum(base, more);
    if (budget > base && std::ranges::find(budgets, budget) == budgets.end()) {
      budgets.push_back(budget);
    }
  }
  std::ranges::sort(budgets);
  double step = run.fits() ? run.prediction.step_seconds : 2 * explanation.unlimited_step_seconds;
  for (const std::uint64_t budget : budgets) {
    // A step that is longer by at most a fraction of 10^-6 counts as equally fast. (The tolerance is not for
    // rounding errors: two forecasts of the same schedule are equal.)
    if (step <= explanation.unlimited_step_seconds * (1 + 1e-6)) {
      return;
    }
    explanation.more.push_back(in_budget(run, costs, budget));
    step = explanation.more.back().step_seconds;
  }
}

// The number of ops at which at least M - `bytes` bytes are in use. M are the bytes in use at the fullest
// moment.
std::size_t ops_within(const Schedule& schedule, std::uint64_t bytes) {
  const std::vector<std::uint64_t> in_use = bytes_in_use(schedule);
  const std::uint64_t most = in_use.empty() ? 0 : std::ranges::max(in_use);
  std::set<OpId> ops;
  std::uint64_t since_launch = 0;  // the most bytes in use; a launch's allocations precede it
  for (std::size_t index = 0; index < in_use.size(); ++index) {
    const Instruction& instruction = schedule.instructions[index];
    since_launch = std::max(since_launch, in_use[index]);
    if (is_launch(instruction.kind)) {
      if (since_launch + bytes >= most) {
        ops.insert(instruction.launched_op());
      }
      since_launch = 0;
    }
  }
  return ops.size();
}

SmallestBudget look_at_smallest_budget(const PlannedRun& run, const PlanCosts& costs) {
  const PlannedRun least = decides_by_budget(run.plan.options.policy)
                               ? plan_again(run, run.plan.options.policy, run.smallest_budget_bytes())
                               : run;
  SmallestBudget smallest{.budget_bytes = run.smallest_budget_bytes(),
                          .peak_bytes = least.prediction.peak_bytes,
                          .fullest = fullest_moment(*run.tape, least.schedule, costs.alignment_bytes),
                          .there = {},
                          .most = most_irreducible(*run.tape, run.plan.options)};
  if (smallest.fullest.launch != kNone) {
    smallest.there =
        irreducible_at(*run.tape, run.plan.options, least.schedule.instructions[smallest.fullest.launch].op);
  }
  const std::uint64_t granule = run.target.profile.granule_bytes;
  const std::uint64_t floor = round_up(smallest.most.bytes(), granule);
  smallest.above_floor_bytes = smallest.peak_bytes - std::min(smallest.peak_bytes, floor);
  smallest.is_floor = smallest.above_floor_bytes == 0;
  smallest.ops_near_peak = ops_within(least.schedule, granule);
  return smallest;
}

}  // namespace

Explanation explain(const PlannedRun& run) {
  const PlanCosts costs = costs_of(run);
  Explanation explanation{.fullest = fullest_moment(*run.tape, run.schedule, costs.alignment_bytes),
                          .peak_bytes = run.prediction.peak_bytes,
                          .smallest = look_at_smallest_budget(run, costs),
                          .decisions = count_decisions(run, costs),
                          .more = {},
                          .oracle_step_seconds = oracle_step_seconds(run),
                          .time = step_time(run.schedule, traced_prediction(run))};
  look_at_more_memory(run, costs, explanation);
  return explanation;
}

namespace {

// The ops for which the value is recomputed. Such an op reads the value itself, or another value that is
// recomputed from it.
std::vector<OpId> made_again_for(const PlannedRun& run, ValueId value) {
  const std::vector<Instruction>& instructions = run.schedule.instructions;
  std::map<BufferId, std::uint32_t> made;  // by buffer: the recomputation of the value, until its first read
  std::set<std::uint32_t> needed;
  for (std::uint32_t index = 0; index < instructions.size(); ++index) {
    for (const BufferUse& use : uses(*run.tape, instructions[index])) {
      if (use.value == value && use.write && instructions[index].kind == InstructionKind::kRecompute) {
        made.insert_or_assign(use.buffer, index);
      } else if (const auto found = made.find(use.buffer);
                 use.value == value && !use.write && found != made.end()) {
        needed.insert(found->second);
        made.erase(found);
      }
    }
  }
  std::vector<OpId> ops;
  std::ranges::transform(needed, std::back_inserter(ops),
                         [&](std::uint32_t index) { return launch_after(run.schedule, index); });
  return ops;
}

}  // namespace

ExplainedValue explain_value(const PlannedRun& run, ValueId value) {
  const Tape& tape = *run.tape;
  const auto readers = tape.readers(value);
  ExplainedValue result{.value = value,
                        .decision = decisions_of(tape, run.schedule)[value],
                        .undecided = why_undecided(run, value),
                        .made_by = tape.producer(value),
                        .readers = {readers.begin(), readers.end()},
                        .offloads = {},
                        .prefetches = {},
                        .recomputed_for = {},
                        .otherwise = {},
                        .remade = {}};
  const Prediction prediction = traced_prediction(run);
  const StepTime time = step_time(run.schedule, prediction);
  for (std::uint32_t index = 0; index < run.schedule.instructions.size(); ++index) {
    const Instruction& instruction = run.schedule.instructions[index];
    if (instruction.value == value && instruction.kind == InstructionKind::kOffload) {
      result.offloads.push_back(copy_time(time, prediction, index));
    } else if (instruction.value == value && instruction.kind == InstructionKind::kPrefetch) {
      result.prefetches.push_back(copy_time(time, prediction, index));
    }
  }
  result.recomputed_for = made_again_for(run, value);
  if (result.undecided.empty()) {
    result.remade = remade(run);
    for (const ValueDecision decision :
         {ValueDecision::kKept, ValueDecision::kOffloaded, ValueDecision::kRecomputed}) {
      result.otherwise.push_back(decision == result.decision ? as_planned(run)
                                                             : decided_otherwise(run, value, decision));
    }
  }
  return result;
}

ExplainedOp explain_op(const PlannedRun& run, OpId op) {
  const PlanCosts costs = costs_of(run);
  const auto launch =
      static_cast<std::uint32_t>(std::ranges::find_if(run.schedule.instructions,
                                                      [&](const Instruction& instruction) {
                                                        return instruction.kind == InstructionKind::kLaunch &&
                                                               instruction.launched_op() == op;
                                                      }) -
                                 run.schedule.instructions.begin());
  const std::vector<double>& seconds = costs.op_seconds[op];
  ExplainedOp result{
      .op = op,
      .memory = memory_at(*run.tape, run.schedule, launch, costs.alignment_bytes),
      .irreducible = irreducible_at(*run.tape, run.plan.options, op),
      .algorithm = run.plan.algorithms[op],
      .fastest_algorithm = static_cast<std::uint32_t>(std::ranges::min_element(seconds) - seconds.begin()),
      .algorithm_seconds = seconds,
      .with_fastest = {},
      .remade = {}};
  // Of several equally fast algorithms, each counts as the fastest.
  if (seconds[result.algorithm] > seconds[result.fastest_algorithm]) {
    result.with_fastest = computed_otherwise(run, op, result.fastest_algorithm);
    result.remade = remade(run);
  }
  for (const StalledLaunch& stall : step_time(run.schedule, traced_prediction(run)).stalls) {
    result.stall_seconds += stall.launch == launch ? stall.seconds : 0;
  }
  return result;
}

std::vector<ValueId> find_values(const Tape& tape, const std::string& name) {
  if (const ValueId value = tape.find_value(name); value != kNone) {
    return {value};
  }
  std::vector<ValueId> values;
  for (const Op& op : tape.ops()) {
    const TapeLayer* const layer = tape.layer_of(op);
    if (op.phase == Phase::kForward && layer != nullptr && layer->name == name) {
      std::ranges::copy_if(op.writes, std::back_inserter(values),
                           [&](ValueId value) { return !tape.value(value).persistent(); });
    }
  }
  if (values.empty()) {
    std::vector<std::string> names;
    for (const Value& value : tape.values()) {
      names.push_back(value.name);
    }
    for (const TapeLayer& layer : tape.layers()) {
      names.push_back(layer.name);
    }
    throw InvalidOption({{.option = "value", .value = name}},
                        "'" + tape.model() + "' has no value or layer of that name; similar names: " +
                            near_names(name, names));
  }
  return values;
}

OpId find_op(const Tape& tape, const std::string& name) {
  const auto found = std::ranges::find(tape.ops(), name, &Op::name);
  if (found == tape.ops().end()) {
    std::vector<std::string> names;
    for (const Op& op : tape.ops()) {
      names.push_back(op.name);
    }
    throw InvalidOption(
        {{.option = "op", .value = name}},
        "'" + tape.model() + "' has no op of that name; similar names: " + near_names(name, names));
  }
  return static_cast<OpId>(found - tape.ops().begin());
}

}  // namespace vdnn
