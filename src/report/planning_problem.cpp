#include "src/report/planning_problem.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/plan/overwrite.h"
#include "src/plan/recomputation.h"
#include "src/report/plan_report_data.h"
#include "vdnn/plan_costs.h"
#include "vdnn/predictor.h"
#include "vdnn/schedule_file.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

Json device_line(const PlannedRun& run, const PlanCosts& costs) {
  return {{"type", "planning_device"},
          {"device", run.target.name},
          {"simulated", run.target.simulated},
          {"tape_fingerprint", fingerprint(*run.tape)},
          {"budget_bytes", run.target.budget_bytes},
          {"library_bytes", run.target.library_bytes},
          {"host_budget_bytes", run.target.host_budget_bytes},
          {"granule_bytes", costs.granule_bytes},
          {"alignment_bytes", costs.alignment_bytes},
          {"device_to_host_bytes_per_second", costs.device_to_host},
          {"host_to_device_bytes_per_second", costs.host_to_device},
          {"device_to_host_bytes_per_second_both_ways", costs.device_to_host_both_ways},
          {"host_to_device_bytes_per_second_both_ways", costs.host_to_device_both_ways},
          {"copy_seconds", costs.copy_seconds},
          {"values", run.tape->values().size()},
          {"ops", run.tape->ops().size()}};
}

Json value_line(const Tape& tape, ValueId id) {
  const Value& value = tape.value(id);
  const auto results = tape.results();
  return {{"type", "planning_value"}, {"value", id},
          {"name", value.name},       {"kind", kind_name(value.kind)},
          {"bytes", value.bytes},     {"persistent", value.persistent()},
          {"loaded", value.loaded()}, {"result", std::ranges::find(results, id) != results.end()}};
}

// An op that reads a value twice may list the same permission twice.
Json permissions_json(const Tape& tape, OpId id) {
  const Op& op = tape.op(id);
  Json permissions = Json::array();
  for (const Overwrite& permission : op.may_overwrite) {
    Json json = {{"write", op.writes[permission.write]},
                 {"read", op.reads[permission.read]},
                 {"taken", overwritten_read(tape, id, permission.write) == permission.read}};
    const auto same = std::ranges::find_if(permissions, [&](const Json& other) {
      return other["write"] == json["write"] && other["read"] == json["read"];
    });
    if (same == permissions.end()) {
      permissions.push_back(std::move(json));
    } else if (json["taken"] == true) {
      *same = std::move(json);
    }
  }
  return permissions;
}

Json algorithms_json(const PlannedRun& run, const PlanCosts& costs, OpId id) {
  const Op& op = run.tape->op(id);
  Json algorithms = Json::array();
  for (std::uint32_t index = 0; index < op.algorithms.size(); ++index) {
    const Algorithm& algorithm = op.algorithms[index];
    // `deterministic` is always true, since every catalog guarantees it (op_catalog.h).
    algorithms.push_back({{"name", algorithm.name},
                          {"seconds", costs.op_seconds[id][index]},
                          {"workspace_bytes", algorithm.workspace_bytes},
                          {"deterministic", true},
                          {"chosen", run.schedule.algorithms[id] == index}});
  }
  return algorithms;
}

Json op_line(const PlannedRun& run, const PlanCosts& costs, OpId id) {
  const Op& op = run.tape->op(id);
  const TapeLayer* const layer = run.tape->layer_of(op);
  return {{"type", "planning_op"},
          {"op", id},
          {"name", op.name},
          {"layer", layer == nullptr ? Json() : Json(layer->name)},
          {"phase", phase_name(op.phase)},
          {"collective", op.collective()},
          {"may_run_again", may_run_again(*run.tape, id)},
          {"reads", op.reads},
          {"writes", op.writes},
          {"may_overwrite", permissions_json(*run.tape, id)},
          {"algorithms", algorithms_json(run, costs, id)}};
}

}  // namespace

std::vector<Json> planning_problem(const PlannedRun& run) {
  const PlanCosts costs = plan_costs(*run.tape, prediction_options(run));
  std::vector<Json> lines{device_line(run, costs)};
  for (ValueId value = 0; value < run.tape->values().size(); ++value) {
    lines.push_back(value_line(*run.tape, value));
  }
  for (OpId op = 0; op < run.tape->ops().size(); ++op) {
    lines.push_back(op_line(run, costs, op));
  }
  return lines;
}

}  // namespace vdnn
