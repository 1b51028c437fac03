#include "src/report/plan_report_data.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/run/scaling.h"

namespace vdnn {

std::string phase_name(Phase phase) {
  constexpr std::array<const char*, 3> kNames{"forward", "backward", "update"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string kind_name(ValueKind kind) {
  constexpr std::array<const char*, 13> kNames{
      "input",         "target",         "parameter",    "optimizer state",    "gradient sum",
      "feature map",   "saved",          "gradient map", "parameter gradient", "metrics",
      "gradient norm", "parameter copy", "loss scale"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

// Rounds to nanoseconds, which keeps the text short.
double rounded(double seconds) {
  return std::round(seconds * 1e9) / 1e9;
}

template <class Id>
Json id_or_null(Id id) {
  return id == kNone ? Json() : Json(id);
}

Json figures_json(const PlannedRun& run, const std::string& advice) {
  const Prediction& prediction = run.prediction;
  const Prediction none =
      predict_policy(run, {.policy = Policy::kOffloadNone, .preference = run.plan.options.preference});
  return {{"model", run.tape->model()},
          {"batch", run.batch()},
          {"device", run.target.name},
          {"simulated", run.target.simulated},
          {"rates_source", run.target.profile.source},
          {"policy", to_string(run.plan.options.policy)},
          {"algorithms", to_string(run.plan.options.preference)},
          {"algorithms_source", run.algorithms_source()},
          {"fits", run.fits()},
          {"budget_bytes", run.target.budget_bytes},
          {"host_budget_bytes", run.target.host_budget_bytes},
          {"smallest_budget_bytes", run.smallest_budget_bytes()},
          {"peak_bytes", prediction.peak_bytes},
          {"average_bytes", static_cast<std::uint64_t>(std::llround(prediction.average_bytes))},
          {"library_bytes", run.target.library_bytes},
          {"host_bytes", prediction.host_bytes},
          {"feature_map_bytes", run.tape->feature_map_bytes()},
          {"weight_bytes", run.tape->weight_bytes()},
          {"workspace_bytes", workspace_bytes(*run.tape, run.plan)},
          {"offload_bytes_per_step", offload_bytes(*run.tape, run.schedule)},
          {"recomputed_ops", recomputed_ops(run.schedule)},
          {"step_seconds", rounded(prediction.step_seconds)},
          {"stall_seconds", rounded(prediction.stall_seconds)},
          {"oracle_step_seconds", rounded(oracle_step_seconds(run))},
          {"lower_bound_step_seconds", rounded(lower_bound_step_seconds(run))},
          {"images_per_second", std::round(1e3 * predict_scaling(run).images_per_second) / 1e3},
          {"none_peak_bytes", none.peak_bytes},
          {"none_step_seconds", rounded(none.step_seconds)},
          {"advice", advice.empty() ? Json() : Json(advice)}};
}

Json op_json(const PlannedRun& run, OpId id) {
  const Op& op = run.tape->op(id);
  const TapeLayer* const layer = run.tape->layer_of(op);
  const Algorithm& algorithm = op.algorithms[run.schedule.algorithms[id]];
  return {{"name", op.name},
          {"layer", layer == nullptr ? Json() : Json(layer->name)},
          {"phase", phase_name(op.phase)},
          {"algorithm", algorithm.name},
          {"algorithms", op.algorithms.size()},
          {"workspace_bytes", algorithm.workspace_bytes}};
}

Json value_json(const Tape& tape, ValueId id) {
  const Value& value = tape.value(id);
  return {{"name", value.name},
          {"kind", kind_name(value.kind)},
          {"bytes", value.bytes},
          {"made_by", id_or_null(tape.producer(id))},
          {"readers", tape.readers(id)}};
}

Json work_json(const PicturedWork& work) {
  Json json = {{"kind", to_string(work.kind)}, {"stream", to_string(work.stream)}};
  if (is_launch(work.kind)) {
    json["op"] = work.op;
  } else {
    json["value"] = work.value;
  }
  json["begin"] = rounded(work.begin);
  json["end"] = rounded(work.end);
  return json;
}

Json stay_json(const Stay& stay) {
  return {{"value", id_or_null(stay.value)},
          {"content", to_string(stay.content)},
          {"address", stay.address},
          {"bytes", stay.bytes},
          {"begin", rounded(stay.begin)},
          {"needed_from", rounded(stay.needed_from)},
          {"needed_until", rounded(stay.needed_until)},
          {"end", rounded(stay.end)},
          {"work", stay.work}};
}

Json decision_json(const Decision& decision) {
  return {{"value", decision.value},
          {"fate", to_string(decision.fate)},
          {"offloads", decision.offloads},
          {"prefetches", decision.prefetches},
          {"recomputations", decision.recomputations},
          {"hidden_share", decision.hidden_share ? Json(*decision.hidden_share) : Json()}};
}

Json peak_json(const FullestMoment& peak) {
  Json residents = Json::array();
  for (const Resident& resident : peak.residents) {
    residents.push_back(
        {{"name", resident.name}, {"content", to_string(resident.content)}, {"bytes", resident.bytes}});
  }
  return {{"op", id_or_null(peak.op)},
          {"seconds", rounded(peak.seconds)},
          {"bytes", peak.bytes},
          {"residents", std::move(residents)}};
}

// The JSON array of one(each) for each element.
template <class Range, class One>
Json list_of(const Range& range, const One& one) {
  Json list = Json::array();
  for (const auto& each : range) {
    list.push_back(one(each));
  }
  return list;
}

}  // namespace

Json plan_report_data(const PlannedRun& run, const StepPicture& picture, const Json& configuration,
                      const std::string& advice) {
  const Tape& tape = *run.tape;
  Json ops = Json::array();
  for (OpId op = 0; op < tape.ops().size(); ++op) {
    ops.push_back(op_json(run, op));
  }
  Json values = Json::array();
  for (ValueId value = 0; value < tape.values().size(); ++value) {
    values.push_back(value_json(tape, value));
  }
  const auto stall_json = [](const Stall& stall) {
    return Json{{"begin", rounded(stall.begin)}, {"end", rounded(stall.end)}, {"awaited", stall.awaited}};
  };
  return {{"schema", kSchema},
          {"type", "plan report"},
          {"figures", figures_json(run, advice)},
          {"configuration", configuration},
          {"ops", std::move(ops)},
          {"values", std::move(values)},
          {"work", list_of(picture.work, work_json)},
          {"stalls", list_of(picture.stalls, stall_json)},
          {"stays", list_of(picture.stays, stay_json)},
          {"decisions", list_of(picture.decisions, decision_json)},
          {"peak", peak_json(picture.peak)}};
}

}  // namespace vdnn
