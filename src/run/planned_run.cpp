#include "vdnn/planned_run.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "src/ops/product_names.h"
#include "src/run/lowered_run.h"
#include "src/run/plan_options.h"
#include "src/run/run_target.h"
#include "vdnn/checker.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/option_error.h"
#include "vdnn/plan_search.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Checks costs that the caller supplies. Costs from a file have been checked by its reader.
void require_possible(const MeasuredCosts& costs) {
  const auto require = [](double number, const std::string& what) {
    if (!std::isfinite(number) || number <= 0) {
      throw InvalidArgument("measured costs: " + what + " is " + std::to_string(number) +
                            ": it must be finite and above 0");
    }
  };
  for (const LinkRates& rates : {costs.link_bytes_per_second, costs.link_bytes_per_second_both_ways}) {
    require(rates.device_to_host, "a rate of the link");
    require(rates.host_to_device, "a rate of the link");
  }
  if (!std::isfinite(costs.launch_seconds) || costs.launch_seconds < 0) {
    throw InvalidArgument("measured costs: the fixed time of a copy is " +
                          std::to_string(costs.launch_seconds) + ": it must be finite and not below 0");
  }
  for (const auto& [op, times] : costs.ops) {
    for (const auto& [algorithm, time] : times) {
      if (time) {
        require(time->seconds,
                std::string("the time of '").append(op).append("' with '").append(algorithm).append("'"));
      }
    }
  }
}

// Replaces the costs of ops, which come from counts and rates, by measured costs.
void take_costs(PlannedRun& run, const MeasuredCosts& costs) {
  require_measured_of(costs, run.measured_setting());
  if (costs.modelled && !run.target.simulated) {
    throw InvalidArgument("measured costs: the costs were modelled for a simulated " + costs.setting.device +
                          "; " + run.target.name + " needs measured ones");
  }
  require_possible(costs);
  run.tape = with_measured_costs(*run.tape, costs);
  run.target.profile = with_measured_rates(std::move(run.target.profile), costs);
  run.measured = costs;
}

void take_profile(PlannedRun& run) {
  const std::filesystem::path& path = *run.options.profile;
  const MeasuredCosts costs = read_measured_costs(path);
  try {
    take_costs(run, costs);
  } catch (const InvalidArgument& error) {
    throw InvalidOption({{.option = "profile", .value = "'" + path.string() + "'"}}, error.what());
  }
}

// Divides the rates of the host's roots among the devices that share a root. By default these are the devices
// that train together. The caller can specify their number only if the profile has roots.
void share_link(PlannedRun& run) {
  const std::optional<std::uint64_t>& asked = run.options.link_shared_by;
  if (asked == 0U) {
    throw InvalidOption({{.option = "link_shared_by", .value = "0"}},
                        "must be at least 1, for the device itself");
  }
  if (asked.value_or(1) > 1 && run.target.profile.root_bytes_per_second == 0) {
    throw InvalidOption({{.option = "link_shared_by", .value = std::to_string(*asked)}},
                        "it is unknown whether devices share a root of " + run.target.name +
                            " (a profile specifies this with devices_on_root and root_bytes_per_second)");
  }
  run.target.profile = with_shared_link(std::move(run.target.profile), asked.value_or(run.devices()));
}

void require_network(const RunOptions& options) {
  if (!std::isfinite(options.network_bytes_per_second) || options.network_bytes_per_second <= 0) {
    throw InvalidOption(
        {{.option = "network_bytes_per_second", .value = std::to_string(options.network_bytes_per_second)}},
        "must be finite and above 0");
  }
}

void take_lowered(PlannedRun& run, Lowered lowered) {
  run.catalog = std::move(lowered.catalog);
  run.library = std::move(lowered.library);
  run.tape = std::move(lowered.tape);
  run.precisions = lowered.precisions;
  run.engine_timing = lowered.engine_timing;
  run.trials = std::move(lowered.trials);
}

// Lowers the run again if `policy` times other engines than the policy for which the run was prepared. Call
// it before the run has a plan.
void lower_for_policy(PlannedRun& run, Policy policy) {
  const Policy prepared = run.options.policy.value_or(Policy::kOffloadNone);
  if (run.target.gpu && run.network &&
      engine_timing(run.options, policy) != engine_timing(run.options, prepared)) {
    take_lowered(run, lower_for(*run.network, run.options, run.target, policy, *run.trials));
  }
}

// Refuses options that would change the tape or its costs. The learned step determines both.
void require_options_of_step(const RunOptions& options) {
  const TrainingOptions& training = options.training;
  for (const auto& [option, given] :
       {std::pair("training.ranks", training.ranks > 1),
        std::pair("training.micro_steps", training.micro_steps > 1), std::pair("graph", options.graph),
        std::pair("profile", options.profile.has_value()),
        std::pair("recorded_algorithms", !options.recorded_algorithms.empty())}) {
    if (given) {
      throw InvalidOption({{.option = option, .value = ""}},
                          "is only for networks of our own; the learned step of " + options.step->program +
                              " is planned as it was recorded");
    }
  }
}

// Lowers `network`. Without a network, returns the tape of the learned step.
Lowered lower_for(const std::optional<Network>& network, const RunOptions& options, const RunTarget& target) {
  if (network) {
    return lower_for(*network, options, target, options.policy.value_or(Policy::kOffloadNone));
  }
  require_options_of_step(options);
  return {.library = nullptr, .catalog = nullptr, .tape = to_tape(*options.step, options.model.batch)};
}

PlannedRun prepare(std::optional<Network> network, const RunOptions& options) {
  require_network(options);
  require_trial_seconds(options);
  RunTarget target = resolve_target(options);
  Lowered lowered = lower_for(network, options, target);
  PlannedRun run{.options = options,
                 .target = std::move(target),
                 .network = std::move(network),
                 .catalog = std::move(lowered.catalog),
                 .library = std::move(lowered.library),
                 .tape = std::move(lowered.tape),
                 .precisions = lowered.precisions,
                 .engine_timing = lowered.engine_timing,
                 .trials = std::move(lowered.trials),
                 .measured = {},
                 .plan = {},
                 .schedule = {},
                 .prediction = {},
                 .smallest_peak_bytes = 0};
  if (options.profile) {
    take_profile(run);
  }
  share_link(run);
  return run;
}

// The budgets that remain after the memory of libraries.
Budgets budgets_of(const RunTarget& target) {
  return {.device_bytes = target.budget_bytes - std::min(target.budget_bytes, target.library_bytes),
          .host_bytes = target.host_budget_bytes};
}

// Refuses policies that a learned step does not support: it has one algorithm for each op and does not mark
// convolutions.
void require_policy_of_step(Policy policy) {
  if (policy == Policy::kOffloadConv || policy == Policy::kDynamic) {
    throw InvalidOption(
        {{.option = "policy", .value = to_string(policy)}},
        "a learned step has neither marked convolutions nor several algorithms; use none, all or optimal");
  }
}

PlannedSchedule plan_by_policy(const PlannedRun& run, const PlanOptions& options) {
  if (!run.network) {
    require_policy_of_step(options.policy);
  }
  const PredictionOptions prediction = prediction_options(run);
  if (options.policy == Policy::kOptimal) {
    return plan_optimal(*run.tape, options, budgets_of(run.target), plan_costs(*run.tape, prediction),
                        *make_forecaster(prediction));
  }
  Plan plan = options.policy == Policy::kDynamic
                  ? plan_dynamic(*run.tape, options, budgets_of(run.target), *make_forecaster(prediction))
                  : make_plan(*run.tape, options);
  Schedule schedule = make_schedule(*run.tape, plan);
  return {.plan = std::move(plan), .schedule = std::move(schedule)};
}

// The peak of a plan in the smallest budget that fits. The peak of static policies does not depend on the
// budget. `dyn` fits wherever `all` fits with the smallest workspaces.
std::uint64_t smallest_peak_bytes(const PlannedRun& run, const PlannedSchedule& planned) {
  PlanOptions options = run.plan.options;
  switch (options.policy) {
    case Policy::kOptimal:
      return planned.smallest_peak_bytes;
    case Policy::kDynamic:
      options.policy = Policy::kOffloadAll;
      options.preference = AlgorithmPreference::kMemory;
      return predict_policy(run, options).peak_bytes;
    default:
      return run.prediction.peak_bytes;
  }
}

using Records = std::map<std::string, std::string>;  // names of algorithms by names of ops

bool are_of(const Tape& tape, const Records& records) {
  std::set<std::string_view> names;
  for (const Op& op : tape.ops()) {
    names.insert(op.name);
    if (op.recorded() && !records.contains(op.name)) {
      return false;
    }
  }
  return std::ranges::all_of(records, [&](const auto& record) { return names.contains(record.first); });
}

// The tape of the same training run, with the opposite value of `sync_batch_normalization`.
std::shared_ptr<const Tape> normalized_the_other_way(const PlannedRun& run) {
  TrainingOptions training = run.options.training;
  training.sync_batch_normalization = !training.normalizes_over_ranks();
  training.ranks = std::max(training.ranks, 2U);
  training.results.clear();  // they may name values that the other tape does not have
  return lower_to_tape(run.own_network(), *run.catalog, training);
}

// Batch normalisation over all ranks and batch normalisation over each rank alone consist of different ops,
// with the same parameters and running statistics. If the recorded algorithms come from a run with the other
// kind, batch normalisation uses the preferred algorithms here. All other ops use the recorded algorithms.
void adopt_records(PlannedRun& run) {
  Records& records = run.options.recorded_algorithms;
  if (records.empty() || are_of(*run.tape, records) || !are_of(*normalized_the_other_way(run), records)) {
    return;  // make_plan() refuses wrong records
  }
  Records adopted =
      algorithm_names(*run.tape, make_plan(*run.tape, {.preference = run.options.algorithms}).algorithms);
  for (const Op& op : run.tape->ops()) {
    if (op.recorded() && !std::holds_alternative<BatchNormalizationSpec>(op.spec)) {
      adopted.at(op.name) = records.at(op.name);
    }
  }
  records = std::move(adopted);
}

void decide(PlannedRun& run, const PlanOptions& options) {
  PlannedSchedule planned = plan_by_policy(run, options);
  run.plan = std::move(planned.plan);
  run.schedule = std::move(planned.schedule);
  require_valid(*run.tape, run.schedule);
  run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
  run.smallest_peak_bytes = smallest_peak_bytes(run, planned);
}

// Plans the run with the algorithms in `recorded`. If the options have no policy, chooses `none` if it fits,
// otherwise `optimal`.
void decide_anew(PlannedRun& run, const Records& recorded) {
  PlanOptions options = plan_options(run.options, run.options.policy.value_or(Policy::kOffloadNone));
  options.recorded = recorded;
  decide(run, options);
  if (!run.options.policy && !run.fits()) {
    options.policy = Policy::kOptimal;
    decide(run, options);
  }
}

}  // namespace

namespace {

// The link between devices. If it is unknown, other GPUs are reached through the link to the host, at its
// rate both ways.
PeerLink link_of_peers(const SimProfile& profile) {
  if (profile.peer_bytes_per_second > 0) {
    return {.bytes_per_second = profile.peer_bytes_per_second, .seconds = profile.peer_seconds};
  }
  const LinkRates& rates = profile.link_bytes_per_second_both_ways;
  return {.bytes_per_second = std::min(rates.device_to_host, rates.host_to_device),
          .seconds = profile.launch_seconds};
}

CollectiveCosts collective_costs(const PlannedRun& run) {
  return {.devices = run.devices(),
          .machines = run.options.machines,
          .peers = link_of_peers(run.target.profile),
          .network = {.bytes_per_second = run.options.network_bytes_per_second, .seconds = kNetworkSeconds}};
}

}  // namespace

PredictionOptions prediction_options(const PlannedRun& run) {
  return {.profile = run.target.profile,
          .page_aligned_blocks = run.options.page_aligned_blocks,
          .graph = run.options.graph,
          .trace = run.options.trace_prediction,
          .collectives = collective_costs(run),
          .micro_steps = run.options.training.micro_steps};
}

const Network& PlannedRun::own_network() const {
  if (!network) {
    throw InvalidArgument(tape->model() + " is a learned step: only its own program can run it");
  }
  return *network;
}

std::int64_t PlannedRun::batch() const {
  return network ? network->batch() : options.model.batch;
}

std::uint64_t PlannedRun::global_batch() const {
  return checked_multiply(static_cast<std::uint64_t>(batch()),
                          std::uint64_t{options.training.ranks} * options.training.micro_steps);
}

bool PlannedRun::fits_in(std::uint64_t budget_bytes) const {
  return prediction.peak_bytes + target.library_bytes <= budget_bytes &&
         prediction.host_bytes <= target.host_budget_bytes;
}

ProductPrecisions PlannedRun::product_precisions() const {
  ProductPrecisions used;
  for (OpId id = 0; id < tape->ops().size(); ++id) {
    const Op& op = tape->op(id);
    const bool matrix_product = std::holds_alternative<FullyConnectedSpec>(op.spec);
    if (matrix_product || std::holds_alternative<ConvolutionSpec>(op.spec) ||
        std::holds_alternative<TransposedConvolutionSpec>(op.spec)) {
      const bool tf32 = ops::is_in_tf32(op.algorithms[schedule.algorithms[id]].name);
      ProductPrecision& narrowest = matrix_product ? used.matrix_products : used.convolutions;
      narrowest = std::max(narrowest,
                           ops::product_precision(op.layer_inputs[0].data_type,
                                                  tf32 ? ProductPrecision::kTf32 : ProductPrecision::kFp32));
    }
  }
  return used;
}

std::string PlannedRun::algorithms_source() const {
  if (options.profile) {
    return "profile " + options.profile->string();
  }
  if (!network) {
    return options.step->framework + " on " + options.step->device;
  }
  return catalog->algorithms_source() + (engine_timing == EngineTiming::kChoosable ? ", timed" : "");
}

MeasuredSetting PlannedRun::measured_setting() const {
  const Network& trained = own_network();
  // The costs of a simulated GPU do not depend on the threads of this machine.
  const bool simulated_gpu = target.simulated && !computes_on_cpu(target);
  return vdnn::measured_setting(trained, *tape,
                                target.gpu ? target.gpus->gpu_name(*target.gpu) : target.profile.name,
                                simulated_gpu ? 1 : target.threads, catalog->algorithms_source());
}

DatasetOptions dataset_options(const Network& network, const std::string& text, std::uint64_t seed) {
  if (network.targets().size() != 1 || network.type(network.targets()[0]).data_type != DataType::kI32) {
    throw InvalidArgument("network " + network.name() +
                          " does not learn classes, and data sets have only classes: write your own training "
                          "loop for it (session.h)");
  }
  const auto without_batch = [&](std::uint32_t id) {
    const Dims& dims = network.type(id).dims;
    return Dims(dims.begin() + 1, dims.end());
  };
  return {.text = text,
          .sample_dims = without_batch(network.input()),
          .target_dims = without_batch(network.targets()[0]),
          .classes = network.classes(),
          .seed = seed};
}

std::optional<std::filesystem::path> default_engine_cache(const std::optional<std::string>& xdg_cache_home,
                                                          const std::optional<std::string>& home) {
  const std::filesystem::path file = std::filesystem::path("vdnn") / "engine_timings.json";
  if (xdg_cache_home && std::filesystem::path(*xdg_cache_home).is_absolute()) {
    return *xdg_cache_home / file;
  }
  return home && !home->empty() ? std::optional(std::filesystem::path(*home) / ".cache" / file)
                                : std::nullopt;
}

namespace {

PlannedRun plan_program(std::optional<Network> network, const RunOptions& options) {
  PlannedRun run = prepare(std::move(network), options);
  adopt_records(run);
  decide(run, plan_options(run.options, options.policy.value_or(Policy::kOffloadNone)));
  if (!options.policy && !run.fits()) {
    if (options.recorded_algorithms.empty()) {
      lower_for_policy(run, Policy::kOptimal);
    }
    decide(run, plan_options(run.options, Policy::kOptimal));
  }
  return run;
}

// The network of the options; nothing if they have a learned step.
std::optional<Network> network_of(const RunOptions& options) {
  return options.step ? std::nullopt : std::optional(make_model(options.model));
}

}  // namespace

PlannedRun plan_run(const RunOptions& options) {
  return plan_program(network_of(options), options);
}

PlannedRun plan_run(Network network, const RunOptions& options) {
  return plan_program(std::move(network), options);
}

PlannedRun with_costs(PlannedRun run, const MeasuredCosts& costs) {
  take_costs(run, costs);
  run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
  return run;
}

PlannedRun replan_run(const PlannedRun& run, const ReplanOptions& options) {
  if (options.change_algorithms && run.options.keep_algorithms) {
    throw InvalidArgument("change_algorithms: keep_algorithms forbids it");
  }
  PlannedRun next = run;
  next.options.policy = options.policy ? options.policy : run.options.policy;
  if (options.change_algorithms) {
    next.options.recorded_algorithms.clear();
    decide_anew(next, {});
    return next;
  }
  decide_anew(next, algorithm_names(*run.tape, run.schedule.algorithms));
  // The caller has not requested these algorithms, so `recorded` keeps those that the caller has requested.
  next.plan.options.recorded = run.plan.options.recorded;
  return next;
}

namespace {

// The algorithms of `none` with the same options. `none` uses measured times of engines only if
// `engine_timings` has them.
Records algorithms_of_none(const PlannedRun& run) {
  const PlanOptions none = plan_options(run.options, Policy::kOffloadNone);
  if (run.engine_timing != EngineTiming::kChoosable) {
    return algorithm_names(*run.tape, make_plan(*run.tape, none).algorithms);
  }
  RunOptions options = run.options;
  options.warn = {};  // the caller already has the warnings
  const Lowered untimed = lower_for(run.own_network(), options, run.target, Policy::kOffloadNone);
  return algorithm_names(*untimed.tape, make_plan(*untimed.tape, none).algorithms);
}

}  // namespace

std::vector<std::string> ops_with_other_algorithms(const PlannedRun& run) {
  if (!chooses_algorithms(run.plan.options.policy)) {
    return {};
  }
  const Records of_none = algorithms_of_none(run);
  const Records chosen = algorithm_names(*run.tape, run.plan.algorithms);
  std::vector<std::string> others;
  for (const Op& op : run.tape->ops()) {
    if (op.recorded() && chosen.at(op.name) != of_none.at(op.name)) {
      others.push_back(op.name);
    }
  }
  return others;
}

PlannedRun plan_again(const PlannedRun& run, Policy policy, std::uint64_t budget_bytes) {
  return plan_again(run, plan_options(run.options, policy), budget_bytes);
}

PlannedRun plan_again(const PlannedRun& run, const PlanOptions& plan, std::uint64_t budget_bytes) {
  if (budget_bytes == 0) {
    throw InvalidArgument("a budget must be larger than 0 bytes");
  }
  PlannedRun again = run;
  again.options.policy = plan.policy;
  again.options.keep_algorithms = plan.keep_algorithms;
  again.options.memory_bytes = budget_bytes;
  again.target.budget_bytes = budget_bytes;
  decide(again, plan);
  return again;
}

PlannedRun plan_run_with_schedule(const RunOptions& options,
                                  const std::function<Schedule(const Tape&)>& read) {
  PlannedRun run = prepare(make_model(options.model), options);
  run.schedule = read(*run.tape);
  require_valid(*run.tape, run.schedule);
  // All decisions are in the schedule. Of this plan, only the parts that do not depend on the policy matter.
  run.plan = make_plan(*run.tape, plan_options(options, Policy::kOffloadNone));
  run.plan.options.policy = options.policy.value_or(Policy::kOffloadNone);
  run.plan.algorithms = run.schedule.algorithms;
  run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
  run.smallest_peak_bytes = run.prediction.peak_bytes;
  return run;
}

Prediction predict_policy(const PlannedRun& run, const PlanOptions& options) {
  PredictionOptions prediction = prediction_options(run);
  prediction.trace = false;
  return predict(*run.tape, plan_by_policy(run, options).schedule, prediction);
}

double oracle_step_seconds(const PlannedRun& run) {
  PlanOptions options = run.plan.options;
  options.policy = Policy::kOffloadNone;
  Plan plan = make_plan(*run.tape, options);
  if (options.recorded.empty()) {
    const PlanCosts costs = plan_costs(*run.tape, prediction_options(run));
    for (OpId op = 0; op < run.tape->ops().size(); ++op) {
      const std::vector<double>& seconds = costs.op_seconds[op];
      plan.algorithms[op] = static_cast<std::uint32_t>(std::ranges::min_element(seconds) - seconds.begin());
    }
  }
  PredictionOptions prediction = prediction_options(run);
  prediction.trace = false;
  return predict(*run.tape, make_schedule(*run.tape, plan), prediction).step_seconds;
}

double lower_bound_step_seconds(const PlannedRun& run) {
  return lower_bound_seconds(*run.tape, plan_costs(*run.tape, prediction_options(run)),
                             budgets_of(run.target).device_bytes);
}

}  // namespace vdnn
