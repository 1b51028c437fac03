#include "src/report/explanation_output.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string>

#include "src/report/plan_report_data.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostOccupants = 15;  // shown to people
constexpr std::size_t kMostStalls = 10;

std::string milliseconds(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(seconds < 0.01 ? 3 : 1) << seconds * 1e3 << " ms";
  return text.str();
}

std::string percent(double part) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << 100 * part << " %";
  return text.str();
}

std::string name_of(const Tape& tape, OpId op) {
  return tape.op(op).name;
}

Json name_or_null(const Tape& tape, OpId op) {
  return op == kNone ? Json() : Json(name_of(tape, op));
}

Json names_of(const Tape& tape, const std::vector<OpId>& ops) {
  Json names = Json::array();
  for (const OpId op : ops) {
    names.push_back(name_of(tape, op));
  }
  return names;
}

std::string why(const Tape& tape, const Occupant& occupant) {
  const std::string next = occupant.needed_by == kNone ? "" : " by " + name_of(tape, occupant.needed_by);
  switch (occupant.reason) {
    case Reason::kOperand:
      return "operand" + (next.empty() ? "" : ", needed again" + next);
    case Reason::kNeeded:
      return "needed" + next;
    case Reason::kFetched:
      return "fetched, needed" + next;
    case Reason::kLeaving:
      return "leaving: stays until its copy is done";
    default:
      return to_string(occupant.reason);
  }
}

// Whether the occupant gets a line of its own. Parameters do not: they are many and always resident.
bool stands_for_itself(const Occupant& occupant) {
  return occupant.reason != Reason::kParameter && occupant.reason != Reason::kOptimizerState;
}

struct Group {
  std::size_t count = 0;
  std::uint64_t bytes = 0;

  void add(const Occupant& occupant) {
    ++count;
    bytes += occupant.bytes;
  }
};

void print_group(std::ostream& out, const Group& group, const char* what) {
  if (group.count > 0) {
    out << std::setw(12) << format_rounded_size(group.bytes) << "  in " << group.count << " " << what << "\n";
  }
}

void print_memory(std::ostream& out, const Tape& tape, const MemoryUse& use) {
  std::vector<const Occupant*> shown;
  Group others;
  Group persistent;
  std::size_t width = 0;
  for (const Occupant& occupant : use.occupants) {
    if (!stands_for_itself(occupant)) {
      persistent.add(occupant);
    } else if (shown.size() == kMostOccupants) {
      others.add(occupant);
    } else {
      shown.push_back(&occupant);
      width = std::max(width, occupant.name.size());
    }
  }
  for (const Occupant* occupant : shown) {
    out << std::setw(12) << format_rounded_size(occupant->bytes) << "  " << std::left
        << std::setw(static_cast<int>(width)) << occupant->name << std::right << "  " << why(tape, *occupant)
        << "\n";
  }
  print_group(out, others, "others");
  print_group(out, persistent, "parameters and parts of the optimizer's state");
}

void print_irreducible(std::ostream& out, const Irreducible& least) {
  out << "parameters and optimizer state " << format_rounded_size(least.persistent_bytes) << ", its operands "
      << format_rounded_size(least.operand_bytes) << ", its least workspace "
      << format_rounded_size(least.workspace_bytes) << ": " << format_size(least.bytes());
}

Json to_json(const Tape& tape, const MemoryUse& use) {
  Json occupants = Json::array();
  for (const Occupant& occupant : use.occupants) {
    occupants.push_back(
        {{"name", occupant.name},
         {"kind", occupant.value == kNone ? "workspace" : kind_name(tape.value(occupant.value).kind)},
         {"bytes", occupant.bytes},
         {"reason", to_string(occupant.reason)},
         {"needed_by", name_or_null(tape, occupant.needed_by)}});
  }
  return {{"in_use_bytes", use.bytes}, {"aligned_bytes", use.aligned_bytes}, {"occupants", occupants}};
}

Json to_json(const Tape& tape, const Irreducible& least) {
  return {{"op", name_or_null(tape, least.op)},
          {"persistent_bytes", least.persistent_bytes},
          {"operand_bytes", least.operand_bytes},
          {"workspace_bytes", least.workspace_bytes},
          {"bytes", least.bytes()}};
}

OpId op_of(const Schedule& schedule, const MemoryUse& use) {
  return use.launch == kNone ? kNone : schedule.instructions[use.launch].op;
}

// --- the plan ----------------------------------------------------------------------------------------------

void print_peak(std::ostream& out, const PlannedRun& run, const Explanation& explanation) {
  const MemoryUse& use = explanation.fullest;
  out << "\nMost memory is in use at "
      << (use.launch == kNone ? "no op" : describe(*run.tape, run.schedule.instructions[use.launch])) << ": "
      << format_size(use.bytes) << "\n";
  print_memory(out, *run.tape, use);
  out << "committed: " << format_size(explanation.peak_bytes) << "; alignment adds "
      << format_rounded_size(use.aligned_bytes - use.bytes)
      << ", gaps between blocks and rounding to granules of "
      << format_rounded_size(run.target.profile.granule_bytes) << " add the rest\n";
}

void print_smallest(std::ostream& out, const PlannedRun& run, const Explanation& explanation) {
  const SmallestBudget& smallest = explanation.smallest;
  const Tape& tape = *run.tape;
  out << "\nThe smallest budget of policy " << to_string(run.plan.options.policy) << " is "
      << format_size(smallest.budget_bytes);
  if (run.target.library_bytes > 0) {
    out << ", " << format_rounded_size(run.target.library_bytes) << " for libraries included";
  }
  out << "\n";
  if (smallest.most.op == kNone) {
    return;
  }
  if (smallest.is_floor) {
    out << "no plan of any policy can need less: " << name_of(tape, smallest.most.op)
        << " needs exactly that in whole granules:\n";
    print_irreducible(out, smallest.most);
    out << "\n";
    return;
  }
  const std::string fullest = name_of(tape, smallest.there.op);
  out << "in that budget the most memory is in use at " << fullest << ", "
      << format_size(smallest.fullest.bytes)
      << "; ops with at most one granule less, this one included: " << smallest.ops_near_peak << "\n"
      << fullest << " cannot run without ";
  print_irreducible(out, smallest.there);
  out << "\nthe rest is kept for other ops, fetched for them, or leaving\n"
      << "no plan of any policy can need less than " << name_of(tape, smallest.most.op) << " does, which is "
      << format_rounded_size(smallest.above_floor_bytes) << " below this peak:\n";
  print_irreducible(out, smallest.most);
  out << "\n";
}

void print_counts(std::ostream& out, const DecisionCounts& counts) {
  const auto print_class = [&](const CountedBytes& sum) {
    out << std::setw(5) << sum.count << " " << std::setw(11) << format_rounded_size(sum.bytes);
  };
  print_class(counts.kept);
  print_class(counts.offloaded);
  print_class(counts.recomputed);
  out << std::setw(12) << counts.slower_algorithms << "\n";
}

void print_budgets(std::ostream& out, const PlannedRun& run, const Explanation& explanation) {
  out << "\nMore memory would give\n";
  if (!explanation.depends_on_budget) {
    out << "no gain: policy " << to_string(run.plan.options.policy) << " ignores the budget\n";
  }
  out << std::setw(12) << "budget" << std::setw(14) << "step" << std::setw(17) << "kept" << std::setw(17)
      << "offloaded" << std::setw(17) << "recomputed" << std::setw(12) << "slower alg."
      << "\n";
  const auto print_line = [&](std::uint64_t budget, bool fits, double step, const DecisionCounts& counts) {
    out << std::setw(12) << format_rounded_size(budget) << std::setw(14)
        << (fits ? milliseconds(step) : "does not fit");
    print_counts(out, counts);
  };
  print_line(run.target.budget_bytes, run.fits(), run.prediction.step_seconds, explanation.decisions);
  for (const OtherBudget& other : explanation.more) {
    print_line(other.budget_bytes, other.fits, other.step_seconds, other.decisions);
  }
  out << "with unlimited memory " << milliseconds(explanation.unlimited_step_seconds) << "; the oracle "
      << milliseconds(explanation.oracle_step_seconds)
      << " (none with the fastest algorithms in unlimited memory; a plan that hides the next input's load "
         "can be "
         "below it)\n";
}

void print_time(std::ostream& out, const PlannedRun& run, const StepTime& time) {
  const auto part = [&](double seconds) {
    return milliseconds(seconds) + " (" + percent(seconds / time.step_seconds) + ")";
  };
  out << "\nA step of " << milliseconds(time.step_seconds) << ": computing " << part(time.compute_seconds)
      << ", recomputing " << part(time.recompute_seconds) << ", waiting " << part(time.stall_seconds) << "\n";
  for (std::size_t each = 0; each < std::min(kMostStalls, time.stalls.size()); ++each) {
    const StalledLaunch& stall = time.stalls[each];
    const Instruction& launch = run.schedule.instructions[stall.launch];
    out << std::setw(14) << milliseconds(stall.seconds) << "  " << describe(*run.tape, launch);
    if (stall.transfer != kNone) {
      out << " waits for " << describe(*run.tape, run.schedule.instructions[stall.transfer])
          << (stall.of_the_step_before ? " of the previous step" : "");
    }
    out << "\n";
  }
  if (time.stalls.size() > kMostStalls) {
    out << std::setw(14) << "..."
        << "  and " << time.stalls.size() - kMostStalls << " shorter ones\n";
  }
}

Json to_json(const CountedBytes& sum) {
  return {{"values", sum.count}, {"bytes", sum.bytes}};
}

Json budget_line(std::uint64_t budget, bool fits, std::uint64_t peak, double step,
                 const DecisionCounts& counts) {
  return {{"type", "budget"},
          {"budget_bytes", budget},
          {"fits", fits},
          {"peak_bytes", peak},
          {"predicted_step_seconds", step},
          {"kept", to_json(counts.kept)},
          {"offloaded", to_json(counts.offloaded)},
          {"recomputed", to_json(counts.recomputed)},
          {"slower_algorithms", counts.slower_algorithms}};
}

Json time_line(const PlannedRun& run, const Explanation& explanation) {
  const StepTime& time = explanation.time;
  Json stalls = Json::array();
  for (const StalledLaunch& stall : time.stalls) {
    const auto& instructions = run.schedule.instructions;
    stalls.push_back(
        {{"launch", describe(*run.tape, instructions[stall.launch])},
         {"seconds", stall.seconds},
         {"waits_for",
          stall.transfer == kNone ? Json() : Json(describe(*run.tape, instructions[stall.transfer]))},
         {"of_the_step_before", stall.of_the_step_before}});
  }
  return {{"type", "time"},
          {"predicted_step_seconds", time.step_seconds},
          {"compute_seconds", time.compute_seconds},
          {"recompute_seconds", time.recompute_seconds},
          {"stall_seconds", time.stall_seconds},
          {"unlimited_step_seconds", explanation.unlimited_step_seconds},
          {"oracle_step_seconds", explanation.oracle_step_seconds},
          {"stalls", stalls}};
}

// --- values and ops ----------------------------------------------------------------------------------------

void print_outcome(std::ostream& out, const PlannedRun& run, const std::string& name, bool actual,
                   const Counterfactual& outcome) {
  out << "  " << std::left << std::setw(22) << name + (actual ? " (as it is)" : "") << std::right << "  ";
  if (!outcome.impossible.empty()) {
    out << "impossible: " << outcome.impossible << "\n";
    return;
  }
  out << "step " << milliseconds(outcome.step_seconds) << ", peak " << format_size(outcome.peak_bytes);
  if (outcome.fits) {
    out << "\n";
  } else if (outcome.missing_bytes > 0) {
    out << ": does not fit, " << format_rounded_size(outcome.missing_bytes) << " missing\n";
  } else {
    out << ": does not fit into page-locked memory, " << format_size(outcome.host_bytes) << " of "
        << format_rounded_size(run.target.host_budget_bytes) << "\n";
  }
}

// Prints how the outcomes that follow were found.
void print_terms(std::ostream& out, const PlannedRun& run, const std::optional<Counterfactual>& remade) {
  out << "with only this decision changed"
      << (run.schedule.arena_bytes > 0 ? ", addresses kept or planned anew:\n" : ":\n");
  if (remade) {
    print_outcome(out, run, "planned anew as it is", false, *remade);
  }
}

Json to_json(const std::string& name, bool actual, const Counterfactual& outcome) {
  Json json{{"decision", name}, {"actual", actual}, {"possible", outcome.impossible.empty()}};
  if (!outcome.impossible.empty()) {
    json["why_not"] = outcome.impossible;
    return json;
  }
  json["fits"] = outcome.fits;
  json["missing_bytes"] = outcome.missing_bytes;
  json["peak_bytes"] = outcome.peak_bytes;
  json["host_bytes"] = outcome.host_bytes;
  json["predicted_step_seconds"] = outcome.step_seconds;
  return json;
}

Json remade_to_json(const std::optional<Counterfactual>& remade) {
  return remade ? to_json("planned anew as it is", false, *remade) : Json();
}

constexpr std::array kDecisions{ValueDecision::kKept, ValueDecision::kOffloaded, ValueDecision::kRecomputed};

void print_copy(std::ostream& out, const char* name, const CopyTime& copy) {
  out << name << " from " << milliseconds(copy.begin_seconds) << " on, for " << milliseconds(copy.seconds)
      << ", " << percent(copy.hidden_share) << " of it hidden by ops\n";
}

Json to_json(const std::vector<CopyTime>& copies) {
  Json array = Json::array();
  for (const CopyTime& copy : copies) {
    array.push_back({{"begin_seconds", copy.begin_seconds},
                     {"seconds", copy.seconds},
                     {"hidden_share", copy.hidden_share}});
  }
  return array;
}

std::string list_of(const Tape& tape, const std::vector<OpId>& ops) {
  std::string text;
  for (const OpId op : ops) {
    text += (text.empty() ? "" : ", ") + name_of(tape, op);
  }
  return text;
}

}  // namespace

void print(std::ostream& out, const PlannedRun& run, const Explanation& explanation) {
  print_peak(out, run, explanation);
  print_smallest(out, run, explanation);
  print_budgets(out, run, explanation);
  print_time(out, run, explanation.time);
}

std::vector<Json> to_json(const PlannedRun& run, const Explanation& explanation) {
  Json memory{{"type", "memory"},
              {"op", name_or_null(*run.tape, op_of(run.schedule, explanation.fullest))},
              {"recomputed",
               explanation.fullest.launch != kNone &&
                   run.schedule.instructions[explanation.fullest.launch].kind == InstructionKind::kRecompute},
              {"peak_bytes", explanation.peak_bytes}};
  memory.update(to_json(*run.tape, explanation.fullest));
  const SmallestBudget& smallest = explanation.smallest;
  std::vector<Json> lines{memory,
                          {{"type", "smallest_budget"},
                           {"smallest_budget_bytes", smallest.budget_bytes},
                           {"peak_bytes", smallest.peak_bytes},
                           {"in_use_bytes", smallest.fullest.bytes},
                           {"irreducible", to_json(*run.tape, smallest.there)},
                           {"most_irreducible", to_json(*run.tape, smallest.most)},
                           {"is_floor", smallest.is_floor},
                           {"above_floor_bytes", smallest.above_floor_bytes},
                           {"ops_near_peak", smallest.ops_near_peak}},
                          budget_line(run.target.budget_bytes, run.fits(), run.prediction.peak_bytes,
                                      run.prediction.step_seconds, explanation.decisions)};
  for (const OtherBudget& other : explanation.more) {
    lines.push_back(
        budget_line(other.budget_bytes, other.fits, other.peak_bytes, other.step_seconds, other.decisions));
  }
  lines.push_back(time_line(run, explanation));
  return lines;
}

void print(std::ostream& out, const PlannedRun& run, const ExplainedValue& value) {
  const Tape& tape = *run.tape;
  const Value& of = tape.value(value.value);
  out << "\n"
      << of.name << ": " << kind_name(of.kind) << ", " << format_size(of.bytes) << ", "
      << to_string(value.decision)
      << (value.undecided.empty() ? "" : "; there is nothing to decide: " + value.undecided) << "\n";
  if (value.made_by != kNone) {
    out << "made by " << name_of(tape, value.made_by) << "\n";
  }
  if (!value.readers.empty()) {
    out << "needed by " << list_of(tape, value.readers) << "\n";
  }
  for (const CopyTime& copy : value.offloads) {
    print_copy(out, "leaves", copy);
  }
  for (const CopyTime& copy : value.prefetches) {
    print_copy(out, "comes back", copy);
  }
  if (!value.recomputed_for.empty()) {
    out << "recomputed for " << list_of(tape, value.recomputed_for) << "\n";
  }
  if (!value.otherwise.empty()) {
    print_terms(out, run, value.remade);
  }
  for (std::size_t each = 0; each < value.otherwise.size(); ++each) {
    print_outcome(out, run, to_string(kDecisions.at(each)), kDecisions.at(each) == value.decision,
                  value.otherwise[each]);
  }
}

Json to_json(const PlannedRun& run, const ExplainedValue& value) {
  const Tape& tape = *run.tape;
  const Value& of = tape.value(value.value);
  Json otherwise = Json::array();
  for (std::size_t each = 0; each < value.otherwise.size(); ++each) {
    otherwise.push_back(to_json(to_string(kDecisions.at(each)), kDecisions.at(each) == value.decision,
                                value.otherwise[each]));
  }
  return {{"type", "value"},
          {"name", of.name},
          {"kind", kind_name(of.kind)},
          {"bytes", of.bytes},
          {"decision", to_string(value.decision)},
          {"why_undecided", value.undecided.empty() ? Json() : Json(value.undecided)},
          {"made_by", name_or_null(tape, value.made_by)},
          {"readers", names_of(tape, value.readers)},
          {"offloads", to_json(value.offloads)},
          {"prefetches", to_json(value.prefetches)},
          {"recomputed_for", names_of(tape, value.recomputed_for)},
          {"otherwise", otherwise},
          {"remade", remade_to_json(value.remade)}};
}

void print(std::ostream& out, const PlannedRun& run, const ExplainedOp& op) {
  const Op& of = run.tape->op(op.op);
  const auto describe_algorithm = [&](std::uint32_t index) {
    return of.algorithms[index].name + ", " + milliseconds(op.algorithm_seconds[index]) + ", workspace " +
           format_rounded_size(of.algorithms[index].workspace_bytes);
  };
  out << "\n" << of.name << ": " << format_size(op.memory.bytes) << " are in use while it runs\n";
  print_memory(out, *run.tape, op.memory);
  out << "it cannot run without ";
  print_irreducible(out, op.irreducible);
  out << "\nalgorithm " << describe_algorithm(op.algorithm) << "; the compute stream waits "
      << milliseconds(op.stall_seconds) << " before it\n";
  if (op.with_fastest) {
    out << "the fastest is " << describe_algorithm(op.fastest_algorithm) << "\n";
    print_terms(out, run, op.remade);
    print_outcome(out, run, "as it is", false, as_planned(run));
    print_outcome(out, run, "with the fastest", false, *op.with_fastest);
  }
}

Json to_json(const PlannedRun& run, const ExplainedOp& op) {
  const Op& of = run.tape->op(op.op);
  const auto algorithm = [&](std::uint32_t index) {
    return Json{{"name", of.algorithms[index].name},
                {"seconds", op.algorithm_seconds[index]},
                {"workspace_bytes", of.algorithms[index].workspace_bytes}};
  };
  Json json{
      {"type", "op"},
      {"name", of.name},
      {"irreducible", to_json(*run.tape, op.irreducible)},
      {"stall_seconds", op.stall_seconds},
      {"algorithm", algorithm(op.algorithm)},
      {"fastest_algorithm", algorithm(op.fastest_algorithm)},
      {"with_fastest", op.with_fastest ? to_json("fastest algorithm", false, *op.with_fastest) : Json()},
      {"remade", remade_to_json(op.remade)}};
  json.update(to_json(*run.tape, op.memory));
  return json;
}

}  // namespace vdnn
