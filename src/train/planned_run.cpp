#include "vdnn/planned_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/cuda_catalog.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/product_names.h"
#include "src/train/run_target.h"
#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/plan_search.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

PlanOptions plan_options(const RunOptions& options, Policy policy) {
  return {.policy = policy,
          .preference = options.algorithms,
          .workspace_limit = options.workspace_limit,
          .keep_algorithms = options.keep_algorithms,
          .recorded = options.recorded_algorithms};
}

struct Lowered {
  std::shared_ptr<OpLibrary> library;
  std::shared_ptr<const OpCatalog> catalog;
  std::shared_ptr<const Tape> tape;
  ProductPrecisions precisions = {};
  EngineTiming engine_timing = EngineTiming::kOff;
  std::shared_ptr<const EngineTrialReport> trials = {};
};

Lowered lower(const Network& network, const RunOptions& options, std::shared_ptr<const OpCatalog> catalog) {
  std::shared_ptr<const Tape> tape = lower_to_tape(network, *catalog, options.training);
  return {.library = nullptr, .catalog = std::move(catalog), .tape = std::move(tape)};
}

Lowered lower(const Network& network, const RunOptions& options, const std::shared_ptr<OpLibrary>& library) {
  Lowered lowered = lower(network, options, std::shared_ptr<const OpCatalog>(library, &library->catalog()));
  lowered.library = library;
  return lowered;
}

// On a device that has TF32.
ProductPrecisions precisions_of(const RunOptions& options) {
  const auto tf32_if = [](bool permitted) {
    return permitted ? ProductPrecision::kTf32 : ProductPrecision::kFp32;
  };
  if (options.tf32) {
    return {.convolutions = tf32_if(*options.tf32), .matrix_products = tf32_if(*options.tf32)};
  }
  return options.recorded_algorithms.empty() ? ProductPrecisions{.convolutions = ProductPrecision::kTf32}
                                             : ops::recorded_precisions(options.recorded_algorithms);
}

bool chooses_algorithms(Policy policy) {
  return policy == Policy::kDynamic || policy == Policy::kOptimal;
}

// Of a run on one GPU under this policy.
EngineTiming engine_timing(const RunOptions& options, Policy policy) {
  if (options.engine_timings) {
    return EngineTiming::kAll;
  }
  const bool policy_chooses = chooses_algorithms(policy) && !options.keep_algorithms;
  const bool alone = options.training.ranks == 1;
  const bool wanted = options.engine_trial_seconds.value_or(kEngineTrialSeconds) > 0;
  return policy_chooses && alone && wanted && !options.profile ? EngineTiming::kChoosable
                                                               : EngineTiming::kOff;
}

double most_trial_seconds(const RunOptions& options) {
  const double otherwise =
      options.engine_timings ? std::numeric_limits<double>::infinity() : kEngineTrialSeconds;
  return options.engine_trial_seconds.value_or(otherwise);
}

// Nothing where engines are not timed by default, or there is nowhere to keep the times.
std::optional<std::filesystem::path> timings_file(const RunOptions& options) {
  if (options.engine_timings) {
    return options.engine_timings;
  }
  if (options.engine_cache) {
    // A failure is told where the file is written.
    std::error_code error;
    std::filesystem::create_directories(options.engine_cache->parent_path(), error);
  }
  return options.engine_cache;
}

// Options that only some devices have are refused where they would change nothing.
void require_no_tf32(const RunOptions& options, const std::string& reason) {
  if (options.tf32.value_or(false)) {
    throw InvalidArgument("--tf32, or --precision tf32: " + reason);
  }
}

std::string precision_text(const RunOptions& options) {
  return std::string("--precision ") + to_string(options.training.precision.storage);
}

// The first generation of GPUs with TF32 (Ampere).
constexpr int kTf32ComputeCapability = 80;

ProductPrecisions precisions_on_gpu(const RunOptions& options, const RunTarget& target) {
  const int capability = target.gpus->compute_capability(*target.gpu);
  if (capability >= kTf32ComputeCapability) {
    return precisions_of(options);
  }
  require_no_tf32(options, target.name + " has no TF32: its compute capability is " +
                               std::to_string(capability / 10) + "." + std::to_string(capability % 10) +
                               ", TF32 needs 8.0");
  return {};
}

// `so_far`: trials of this run, which count towards its limit.
Lowered lower_for_gpu(const Network& network, const RunOptions& options, const RunTarget& target,
                      EngineTiming timing, const EngineTrialReport& so_far) {
  const ProductPrecisions precisions = precisions_on_gpu(options, target);
  const auto trials = std::make_shared<EngineTrialReport>(so_far);
  GpuOpsOptions asked{.precisions = precisions,
                      .engine_timing = timing,
                      .trial_report = trials,
                      .trial_bytes = target.budget_bytes - target.library_bytes,
                      .warn = options.warn};
  if (timing != EngineTiming::kOff) {
    asked.engine_timings = timings_file(options);
    asked.most_trial_seconds = most_trial_seconds(options);
  }
  try {
    Lowered lowered = lower(network, options, target.gpus->make_ops(*target.gpu, asked));
    lowered.precisions = precisions;
    lowered.engine_timing = timing;
    lowered.trials = trials;
    return lowered;
  } catch (const cuda::NoEngine& error) {
    throw InvalidArgument("network " + network.name() + " cannot be computed on " + target.name + ": " +
                          error.what());
  }
}

void require_no_engine_trials(const RunOptions& options, const RunTarget& target) {
  for (const auto& [option, given] :
       {std::pair("--engine-timings", options.engine_timings.has_value()),
        std::pair("--engine-trial-seconds", options.engine_trial_seconds.value_or(0) > 0)}) {
    if (given) {
      throw InvalidArgument(std::string(option) + ": there are no engines to be timed on " + target.name +
                            "; use cuda:N");
    }
  }
}

// With the driver's catalog; nothing where the engines of a convolution are not known.
std::optional<Lowered> lower_with_known_engines(const Network& network, const RunOptions& options,
                                                const std::string& gpu, const ProductPrecisions& precisions) {
  std::shared_ptr<const cuda::EngineSource> engines = cuda::engines_of_gpu(gpu);
  if (!engines) {
    return std::nullopt;
  }
  try {
    return lower(network, options, std::make_shared<cuda::CudaCatalog>(std::move(engines), precisions));
  } catch (const cuda::NoEngine& error) {
    if (options.warn) {
      options.warn("network " + network.name() +
                   " is planned with the classic algorithms, since engines of sim:" + gpu +
                   " are not known: " + error.what());
    }
    return std::nullopt;
  }
}

// One model covers a whole network: where the engines of one of its convolutions are not known, all of it has
// the classic algorithms, which multiply in the same types at the same rates.
Lowered lower_for_simulated_gpu(const Network& network, const RunOptions& options,
                                const SimProfile& profile) {
  const DataType storage = options.training.precision.storage;
  const FlopRates& rates = profile.flops_per_second;
  if (is_narrow(storage) && !((storage == DataType::kF16 ? rates.fp16 : rates.bf16) > 0)) {
    throw InvalidArgument(precision_text(options) + ": the profile of sim:" + profile.name +
                          " has no rate of it (flops_per_second, " + to_string(storage) + ")");
  }
  ProductPrecisions precisions;
  if (profile.flops_per_second.tf32 > 0) {
    precisions = precisions_of(options);
  } else {
    require_no_tf32(options,
                    "the profile of sim:" + profile.name + " has no rate of it (flops_per_second, tf32)");
  }
  std::optional<Lowered> lowered = lower_with_known_engines(network, options, profile.name, precisions);
  if (!lowered) {
    lowered = lower(network, options,
                    precisions == ProductPrecisions() && !is_narrow(storage)
                        ? make_classic_catalog()
                        : classic::make_tensor_core_catalog(profile, precisions, storage));
  }
  lowered->precisions = precisions;
  return *std::move(lowered);
}

// `cpu`, simulated or not.
bool computes_on_cpu(const RunTarget& target) {
  return target.profile.name == "cpu";
}

// What computes on `cpu` plans for it, simulated or not; simulated GPUs have a catalog and nothing behind it.
Lowered lower_for(const Network& network, const RunOptions& options, const RunTarget& target, Policy policy,
                  const EngineTrialReport& so_far = {}) {
  if (target.gpu) {
    return lower_for_gpu(network, options, target, engine_timing(options, policy), so_far);
  }
  require_no_engine_trials(options, target);
  if (computes_on_cpu(target)) {
    require_no_tf32(options, "products are computed in fp32 on " + target.name + "; use cuda:N or sim:NAME");
    return lower(network, options, std::shared_ptr<OpLibrary>(make_cpu_ops({.threads = target.threads})));
  }
  return lower_for_simulated_gpu(network, options, target.profile);
}

// Files have been looked at; costs may come from elsewhere.
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
    throw InvalidArgument("measured costs: what a copy takes besides its bytes is " +
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

// What was measured takes the place of what follows from counts and rates.
void take_costs(PlannedRun& run, const MeasuredCosts& costs) {
  require_measured_of(costs, run.measured_setting());
  if (costs.modelled && !run.target.simulated) {
    throw InvalidArgument("measured costs: these were modelled for a simulated " + costs.setting.device +
                          "; " + run.target.name + " needs costs that were measured");
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
    throw InvalidArgument("--profile '" + path.string() + "': " + error.what());
  }
}

// How many is asked for only of devices of which it is known what that changes; those that train together
// share what is known of.
void share_link(PlannedRun& run) {
  const std::optional<std::uint64_t>& asked = run.options.link_shared_by;
  if (asked == 0U) {
    throw InvalidArgument("link_shared_by is 0: at least the device itself copies");
  }
  if (asked.value_or(1) > 1 && run.target.profile.root_bytes_per_second == 0) {
    throw InvalidArgument("--link-shared-by " + std::to_string(*asked) + ": of " + run.target.name +
                          " it is not known whether devices share a root (a profile says so with "
                          "devices_on_root and root_bytes_per_second)");
  }
  run.target.profile = with_shared_link(std::move(run.target.profile), asked.value_or(run.devices()));
}

void require_network(const RunOptions& options) {
  if (!std::isfinite(options.network_bytes_per_second) || options.network_bytes_per_second <= 0) {
    throw InvalidArgument("--network-gbytes-per-s " + std::to_string(options.network_bytes_per_second / 1e9) +
                          ": a network's rate is finite and above 0");
  }
}

void require_trial_seconds(const RunOptions& options) {
  const std::optional<double>& seconds = options.engine_trial_seconds;
  if (seconds && (!std::isfinite(*seconds) || *seconds < 0)) {
    throw InvalidArgument("--engine-trial-seconds " + std::to_string(*seconds) +
                          ": it must be finite and not below 0");
  }
  if (seconds == 0.0 && options.engine_timings) {
    throw InvalidArgument("--engine-trial-seconds 0: nothing would be timed for --engine-timings");
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

// For another policy than the run was prepared for, before anything of it was decided.
void lower_for_policy(PlannedRun& run, Policy policy) {
  const Policy prepared = run.options.policy.value_or(Policy::kOffloadNone);
  if (run.target.gpu && run.network &&
      engine_timing(run.options, policy) != engine_timing(run.options, prepared)) {
    take_lowered(run, lower_for(*run.network, run.options, run.target, policy, *run.trials));
  }
}

// What would change the tape or its costs, and is not in a learned step.
void require_options_of_step(const RunOptions& options) {
  const TrainingOptions& training = options.training;
  for (const auto& [option, given] :
       {std::pair("--devices and --machines", training.ranks > 1),
        std::pair("--accumulate", training.micro_steps > 1), std::pair("--graph", options.graph),
        std::pair("--profile", options.profile.has_value()),
        std::pair("recorded algorithms", !options.recorded_algorithms.empty())}) {
    if (given) {
      throw InvalidArgument(std::string(option) + ": belongs to networks of our own; the learned step of " +
                            options.step->program + " is planned as it was recorded");
    }
  }
}

// Of a learned step, where there is no network.
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

// Of a budget that was not asked for, what is beside it.
Budgets budgets_of(const RunTarget& target) {
  return {.device_bytes = target.budget_bytes - std::min(target.budget_bytes, target.library_bytes),
          .host_bytes = target.host_budget_bytes};
}

// A learned step has one algorithm for each op and does not tell convolutions.
void require_policy_of_step(Policy policy) {
  if (policy == Policy::kOffloadConv || policy == Policy::kDynamic) {
    throw InvalidArgument(
        "--policy " + to_string(policy) +
        ": a learned step tells neither convolutions nor algorithms; use none, all or optimal");
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

// What static policies take does not depend on the budget; `dyn` runs where `all` with the least workspaces
// does.
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

// The tape of a training that normalises over the batches of all ranks where this one does not, or the other
// way around.
std::shared_ptr<const Tape> normalized_the_other_way(const PlannedRun& run) {
  TrainingOptions training = run.options.training;
  training.sync_batch_normalization = !training.normalizes_over_ranks();
  training.ranks = std::max(training.ranks, 2U);
  training.results.clear();  // values of this tape
  return lower_to_tape(run.own_network(), *run.catalog, training);
}

// Batch normalisation over the batches of all ranks is made of other ops than that over each rank's own, of
// the same parameters and running statistics. Where all records are of a training that did it the other way,
// its ops have what is preferred, and what is recorded of all others stands.
void adopt_records(PlannedRun& run) {
  Records& records = run.options.recorded_algorithms;
  if (records.empty() || are_of(*run.tape, records) || !are_of(*normalized_the_other_way(run), records)) {
    return;  // what is wrong is said by who plans
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

void decide(PlannedRun& run, Policy policy) {
  PlannedSchedule planned = plan_by_policy(run, plan_options(run.options, policy));
  run.plan = std::move(planned.plan);
  run.schedule = std::move(planned.schedule);
  require_valid(*run.tape, run.schedule);
  run.prediction = predict(*run.tape, run.schedule, prediction_options(run));
  run.smallest_peak_bytes = smallest_peak_bytes(run, planned);
}

// As the run was asked to, with the algorithms that it has.
void decide(PlannedRun& run) {
  decide(run, run.options.policy.value_or(Policy::kOffloadNone));
  if (!run.options.policy && !run.fits()) {
    decide(run, Policy::kOptimal);
  }
}

}  // namespace

namespace {

// Where no other way between devices is known, it is the link that copies take, both ways at once.
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

bool PlannedRun::fits() const {
  return prediction.peak_bytes + target.library_bytes <= target.budget_bytes &&
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
  // The threads of this machine are no matter of a GPU that is not here.
  const bool simulated_gpu = target.simulated && !computes_on_cpu(target);
  return vdnn::measured_setting(trained, *tape,
                                target.gpu ? target.gpus->gpu_name(*target.gpu) : target.profile.name,
                                simulated_gpu ? 1 : target.threads, catalog->algorithms_source());
}

DatasetOptions dataset_options(const Network& network, const std::string& text, std::uint64_t seed) {
  if (network.targets().size() != 1 || network.type(network.targets()[0]).data_type != DataType::kI32) {
    throw InvalidArgument("network " + network.name() +
                          " is to learn something else than classes: data sets have those only, so its steps "
                          "need a loop of their own (session.h)");
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
  decide(run, options.policy.value_or(Policy::kOffloadNone));
  if (!options.policy && !run.fits()) {
    if (options.recorded_algorithms.empty()) {
      lower_for_policy(run, Policy::kOptimal);
    }
    decide(run, Policy::kOptimal);
  }
  return run;
}

// None: a learned step is planned.
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
    decide(next);
    return next;
  }
  next.options.recorded_algorithms = algorithm_names(*run.tape, run.schedule.algorithms);
  decide(next);
  // What the run was asked for is what it was: others are compared with that.
  next.options.recorded_algorithms = run.options.recorded_algorithms;
  next.plan.options.recorded = run.plan.options.recorded;
  return next;
}

namespace {

// Of `none` with the same options: it has no times of engines but those in a file that was asked for.
Records algorithms_of_none(const PlannedRun& run) {
  const PlanOptions none = plan_options(run.options, Policy::kOffloadNone);
  if (run.engine_timing != EngineTiming::kChoosable) {
    return algorithm_names(*run.tape, make_plan(*run.tape, none).algorithms);
  }
  RunOptions options = run.options;
  options.warn = {};  // it has been said
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
  if (budget_bytes == 0) {
    throw InvalidArgument("a budget of 0 bytes has room for nothing");
  }
  PlannedRun again = run;
  again.options.policy = policy;
  again.options.memory_bytes = budget_bytes;
  again.target.budget_bytes = budget_bytes;
  decide(again, policy);
  return again;
}

PlannedRun plan_run_with_schedule(const RunOptions& options,
                                  const std::function<Schedule(const Tape&)>& read) {
  PlannedRun run = prepare(make_model(options.model), options);
  run.schedule = read(*run.tape);
  require_valid(*run.tape, run.schedule);
  // What was decided is in the schedule; of the plan only that is looked at which no policy has a say in.
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

namespace {

const std::string& name_of(const Tape& tape, const TapeParameter& parameter) {
  return tape.value(parameter.value).name;
}

// How it is stored is left aside: that may be a matter of the batch.
void require_same_parameter(const Tape& training, const Tape& evaluation, std::size_t index) {
  const TapeParameter& trained = training.parameters()[index];
  const TapeParameter& evaluated = evaluation.parameters()[index];
  const std::string& name = name_of(training, trained);
  if (name_of(evaluation, evaluated) != name) {
    throw InvalidArgument("evaluation has parameter " + name_of(evaluation, evaluated) +
                          " where training has " + name);
  }
  if (evaluated.recipe.type != trained.recipe.type) {
    throw InvalidArgument(
        "parameter " + name + " is " + to_string(evaluated.recipe.type.dims) + " in evaluation and " +
        to_string(trained.recipe.type.dims) + " in training" +
        (evaluated.recipe.type.dims == trained.recipe.type.dims ? ", of another type" : ""));
  }
  if (evaluated.recipe.storage_layout == trained.recipe.storage_layout &&
      evaluated.recipe.storage_bytes != trained.recipe.storage_bytes) {
    throw InvalidArgument("parameter " + name + " takes " + std::to_string(evaluated.recipe.storage_bytes) +
                          " bytes in evaluation and " + std::to_string(trained.recipe.storage_bytes) +
                          " in training");
  }
}

void require_same_parameters(const Tape& training, const Tape& evaluation) {
  const std::size_t common = std::min(training.parameters().size(), evaluation.parameters().size());
  for (std::size_t index = 0; index < common; ++index) {
    require_same_parameter(training, evaluation, index);
  }
  if (training.parameters().size() > common) {
    throw InvalidArgument("parameter " + name_of(training, training.parameters()[common]) +
                          " is missing in evaluation");
  }
  if (evaluation.parameters().size() > common) {
    throw InvalidArgument("parameter " + name_of(evaluation, evaluation.parameters()[common]) +
                          " is missing in training");
  }
}

bool store_parameters_alike(const Tape& training, const Tape& evaluation) {
  const auto layout = [](const TapeParameter& parameter) { return parameter.recipe.storage_layout; };
  return std::ranges::equal(training.parameters(), evaluation.parameters(), {}, layout, layout);
}

// An op that training has too computes as it does there, so that a run that is resumed with the algorithms
// of its checkpoint evaluates as the one that was not interrupted. The others follow the preference.
Plan evaluation_plan(const PlannedRun& run, const Tape& evaluation) {
  PlanOptions options = plan_options(run.options, Policy::kOffloadNone);
  options.recorded.clear();
  Plan plan = make_plan(evaluation, options);
  std::map<std::string_view, std::string_view> trained;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    const Op& op = run.tape->op(id);
    trained.emplace(op.name, op.algorithms[run.plan.algorithms[id]].name);
  }
  for (OpId id = 0; id < evaluation.ops().size(); ++id) {
    const Op& op = evaluation.op(id);
    if (const auto found = trained.find(op.name); found != trained.end()) {
      const auto algorithm = std::ranges::find(op.algorithms, found->second, &Algorithm::name);
      if (algorithm != op.algorithms.end()) {
        plan.algorithms[id] = static_cast<std::uint32_t>(algorithm - op.algorithms.begin());
      }
    }
  }
  return plan;
}

EvaluationPlan evaluation_with_batch(const PlannedRun& run, std::int64_t batch) {
  const Network network = run.own_network().with_batch(batch);
  EvaluationPlan evaluation{
      .batch = batch,
      .tape = lower_to_evaluation_tape(network, *run.catalog, run.options.training.precision),
      .schedule = {},
      .peak_bytes = 0};
  require_same_parameters(*run.tape, *evaluation.tape);
  evaluation.schedule = make_schedule(*evaluation.tape, evaluation_plan(run, *evaluation.tape));
  require_valid(*evaluation.tape, evaluation.schedule);
  return evaluation;
}

// None where the network or the device cannot compute a batch that is smaller than training's: that of
// training is known to be one, and there an error is a fault.
std::optional<EvaluationPlan> try_evaluation(const PlannedRun& run, std::int64_t batch) {
  try {
    return evaluation_with_batch(run, batch);
  } catch (const InvalidArgument&) {
    if (batch == run.batch()) {
      throw;
    }
    return std::nullopt;
  }
}

}  // namespace

EvaluationPlan plan_evaluation(const PlannedRun& run) {
  std::optional<std::uint64_t> smallest;
  std::int64_t smallest_batch = 0;
  for (std::int64_t batch = run.batch(); batch > 0; batch = batch % 2 == 0 ? batch / 2 : 0) {
    std::optional<EvaluationPlan> evaluation = try_evaluation(run, batch);
    if (!evaluation || !store_parameters_alike(*run.tape, *evaluation->tape)) {
      continue;
    }
    const std::uint64_t peak =
        predict_evaluation_peak(*run.tape, *evaluation->tape, evaluation->schedule, prediction_options(run));
    evaluation->peak_bytes = peak;
    if (peak <= run.prediction.peak_bytes) {
      return *std::move(evaluation);
    }
    if (peak < smallest.value_or(peak + 1)) {
      smallest = peak;
      smallest_batch = batch;
    }
  }
  if (!smallest) {
    throw InvalidArgument("network " + run.tape->model() + " cannot be evaluated: with no batch does " +
                          run.target.name + " store its parameters as in training");
  }
  throw OutOfMemory("evaluation needs more memory than training: batch " + std::to_string(smallest_batch) +
                        ", the smallest try, takes " + std::to_string(*smallest) + " bytes",
                    {.asked = *smallest, .budget = run.prediction.peak_bytes});
}

}  // namespace vdnn
