#include "vdnn/cost_measurement.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/run/launch_times.h"
#include "src/run/link_measurement.h"
#include "vdnn/checker.h"
#include "vdnn/dataset.h"
#include "vdnn/option_error.h"
#include "vdnn/session.h"

namespace vdnn {

namespace {

// Algorithms for some of the ops that have several algorithms. All other ops use their algorithm in `base_`.
using Choice = std::vector<std::pair<OpId, std::uint32_t>>;

// The size for which half of all bytes of feature maps are in maps of at least this size.
std::uint64_t typical_map_bytes(const Tape& tape) {
  std::vector<std::uint64_t> sizes;
  for (const Value& value : tape.values()) {
    if (value.kind == ValueKind::kFeatureMap || value.kind == ValueKind::kInput) {
      sizes.push_back(value.bytes);
    }
  }
  std::ranges::sort(sizes, std::greater<>());
  std::uint64_t left = tape.feature_map_bytes() / 2;
  for (const std::uint64_t size : sizes) {
    if (size >= left) {
      return size;
    }
    left -= size;
  }
  return sizes.back();
}

class CostMeasurement {
 public:
  CostMeasurement(const PlannedRun& run, const CostMeasurementOptions& options)
      : run_(run),
        options_(options),
        data_(open_dataset(dataset_options(run.own_network(), "synthetic", options.seed))) {
    PlanOptions least;
    least.preference = AlgorithmPreference::kMemory;
    base_ = make_plan(*run.tape, least).algorithms;
  }

  MeasuredCosts measure() {
    const std::optional<PlannedRun> base = plan_with({});
    if (!base) {
      require_fit(planned({}, Policy::kOffloadAll));
    }
    measure_link_of(*base);
    std::size_t most = 0;
    for (const Op& op : run_.tape->ops()) {
      most = std::max(most, op.algorithms.size());
    }
    for (std::uint32_t algorithm = 0; algorithm < most; ++algorithm) {
      Choice choice;
      for (OpId id = 0; id < run_.tape->ops().size(); ++id) {
        if (algorithm < run_.tape->op(id).algorithms.size()) {
          choice.emplace_back(id, algorithm);
        }
      }
      measure(choice);
    }
    return std::move(costs_);
  }

 private:
  // Measures all algorithms of the choice in one run. If that does not fit, measures the halves of the choice
  // separately.
  void measure(std::span<const std::pair<OpId, std::uint32_t>> choice) {
    if (const std::optional<PlannedRun> run = plan_with(choice)) {
      time_steps(*run, choice);
    } else if (choice.size() == 1) {
      const Op& op = run_.tape->op(choice.front().first);
      costs_.ops[op.name][op.algorithms[choice.front().second].name] = std::nullopt;
    } else {
      measure(choice.first(choice.size() / 2));
      measure(choice.subspan(choice.size() / 2));
    }
  }

  PlannedRun planned(std::span<const std::pair<OpId, std::uint32_t>> choice, Policy policy) const {
    std::vector<std::uint32_t> algorithms = base_;
    for (const auto& [op, algorithm] : choice) {
      algorithms[op] = algorithm;
    }
    PlanOptions options{.policy = policy};
    for (OpId id = 0; id < algorithms.size(); ++id) {
      const Op& op = run_.tape->op(id);
      options.recorded.emplace(op.name, op.algorithms[algorithms[id]].name);
    }
    PlannedRun result = run_;
    result.plan = make_plan(*run_.tape, options);
    result.schedule = make_schedule(*run_.tape, result.plan);
    require_valid(*run_.tape, result.schedule);
    result.prediction =
        predict(*run_.tape, result.schedule,
                {.profile = run_.target.profile, .page_aligned_blocks = run_.options.page_aligned_blocks});
    return result;
  }

  // Plans under the policy that offloads least among those that fit. Returns nothing if no policy fits.
  std::optional<PlannedRun> plan_with(std::span<const std::pair<OpId, std::uint32_t>> choice) const {
    for (const Policy policy : {Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
      PlannedRun run = planned(choice, policy);
      if (run.fits()) {
        return run;
      }
    }
    return std::nullopt;
  }

  SessionOptions session_options() const {
    return {.seed = options_.seed,
            .link_gbytes_per_second = options_.link_gbytes_per_second,
            .steps_one_by_one = true};  // a trace shows a graph as one event, without its ops
  }

  // Measures the link before any step has run, while most of the device's memory is free.
  void measure_link_of(const PlannedRun& run) {
    Session session(run, session_options());
    const MeasuredLink link = measure_link(session.device(), session.pinned(), typical_map_bytes(*run_.tape));
    costs_.link_bytes_per_second = link.one_way;
    costs_.link_bytes_per_second_both_ways = link.both_ways;
    costs_.launch_seconds = link.copy_seconds;
  }

  void time_steps(const PlannedRun& run, std::span<const std::pair<OpId, std::uint32_t>> choice) {
    if (options_.progress) {
      options_.progress(choice.size());
    }
    const LaunchSeconds launches = traced_steps(run);
    for (const auto& [id, algorithm] : choice) {
      const Op& op = run_.tape->op(id);
      const auto found = launches.find(op.name);
      if (found == launches.end()) {
        throw DeviceError(run_.target.name + " has not timed op '" + op.name + "'");
      }
      costs_.ops[op.name][op.algorithms[algorithm].name] = time_of(found->second);
    }
  }

  // As in training, the host reads each step's loss after it has submitted the next step. The learning rate
  // is 0, so that parameters keep their initial values.
  LaunchSeconds traced_steps(const PlannedRun& run) {
    Session session(run, session_options());
    const BatchOrder order{
        .samples = data_.training->size(), .batch = run.batch(), .shuffle = true, .seed = options_.seed};
    BatchLoader loader(session.device(), session.pinned(), *data_.training, order, 0, 1);
    const StagedBatch batch = loader.next();
    const std::array inputs{batch.images, batch.targets};
    session.wait(session.submit(inputs, 0));
    session.device().set_tracing(true);
    StepTicket last = session.submit(inputs, 0);
    for (std::uint64_t step = 0; step < options_.steps; ++step) {
      const StepTicket next = session.submit(inputs, 0);
      session.wait(std::exchange(last, next));
    }
    session.wait(last);
    session.finish();
    session.device().set_tracing(false);
    return launch_seconds(session.device().take_trace(), session.streams()[StreamRole::kCompute]);
  }

  const PlannedRun& run_;
  const CostMeasurementOptions& options_;
  DatasetSplits data_;
  std::vector<std::uint32_t> base_;  // by op: the algorithm with the least workspace
  MeasuredCosts costs_;
};

}  // namespace

MeasuredCosts measure_costs(const PlannedRun& run, const CostMeasurementOptions& options) {
  if (run.target.simulated) {
    throw InvalidArgument("costs are measured on real devices, not on " + run.target.name);
  }
  if (options.steps < kFewestMeasuredSteps) {
    throw InvalidArgument("costs of " + std::to_string(options.steps) + " steps: measure at least " +
                          std::to_string(kFewestMeasuredSteps));
  }
  if (const std::uint32_t accumulated = run.options.training.micro_steps; accumulated > options.steps) {
    throw InvalidOption(
        {{.option = "training.micro_steps", .value = std::to_string(accumulated)},
         {.option = "steps", .value = std::to_string(options.steps)}},
        "only one of " + std::to_string(accumulated) + " steps updates, so at least as many must be timed");
  }
  MeasuredCosts costs = CostMeasurement(run, options).measure();
  costs.setting = run.measured_setting();
  costs.link_gbytes_per_second = options.link_gbytes_per_second;
  return costs;
}

}  // namespace vdnn
