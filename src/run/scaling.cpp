#include "src/run/scaling.h"

#include <algorithm>
#include <limits>

namespace vdnn {

namespace {

double update_seconds(const PlannedRun& run, const Prediction& prediction) {
  return prediction.step_seconds + (run.options.training.micro_steps - 1) * prediction.micro_step_seconds;
}

double reduce_seconds(const PlannedRun& run) {
  const CollectiveCosts costs = prediction_options(run).collectives;
  double seconds = 0;
  for (const Op& op : run.tape->ops()) {
    if (op.collective()) {
      std::uint64_t bytes = 0;
      for (const ValueId value : op.reads) {
        bytes += run.tape->value(value).bytes;
      }
      // Reductions that do not belong to the update run in each micro-step.
      const std::uint32_t times = op.phase == Phase::kUpdate ? 1 : run.options.training.micro_steps;
      seconds += times * costs.all_reduce_seconds(bytes);
    }
  }
  return seconds;
}

Prediction with_reductions_for_nothing(const PlannedRun& run) {
  constexpr PeerLink kAtOnce{.bytes_per_second = std::numeric_limits<double>::infinity(), .seconds = 0};
  PredictionOptions options = prediction_options(run);
  options.trace = false;
  options.collectives.peers = kAtOnce;
  options.collectives.network = kAtOnce;
  return predict(*run.tape, run.schedule, options);
}

PlannedRun one_device_of(const PlannedRun& run) {
  RunOptions options = run.options;
  options.training.ranks = 1;
  options.machines = 1;
  options.link_shared_by = 1;
  options.threads = run.target.threads;  // as many as each of the devices that train together uses
  options.policy = run.plan.options.policy;
  options.memory_bytes = run.target.budget_bytes;
  options.host_memory_bytes = run.target.host_budget_bytes;
  options.gpu_reserve_bytes.reset();
  options.trace_prediction = false;
  options.warn = {};
  if (!options.engine_timings) {
    options.engine_trial_seconds = 0;  // by default, ranks that train together time no engines
  }
  return plan_run(run.own_network(), options);
}

}  // namespace

Scaling predict_scaling(const PlannedRun& run) {
  const double seconds = update_seconds(run, run.prediction);
  Scaling scaling{.update_seconds = seconds,
                  .images_per_second = static_cast<double>(run.global_batch()) / seconds};
  if (run.options.training.ranks > 1) {
    const PlannedRun alone = one_device_of(run);
    scaling.efficiency = update_seconds(alone, alone.prediction) / seconds;
    scaling.reduce_seconds = reduce_seconds(run);
    scaling.exposed_reduce_seconds =
        std::max(0.0, seconds - update_seconds(run, with_reductions_for_nothing(run)));
  }
  return scaling;
}

}  // namespace vdnn
