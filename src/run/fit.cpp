#include <algorithm>
#include <iomanip>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/run/max_batch.h"
#include "src/run/plan_options.h"
#include "vdnn/option_error.h"
#include "vdnn/planned_run.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Whether plan_run() can plan the run with another batch. It cannot if the network is the caller's own or the
// learned step's batch is unknown.
bool has_other_batches(const PlannedRun& run) {
  const RunOptions& options = run.options;
  return run.network ? options.model.model == run.network->name() : options.step->batch.has_value();
}

// The options of `run`, for plans with other batches; these plans time no engines. Returns nothing if the
// run's network or algorithms are only for its own batch.
std::optional<RunOptions> options_of_other_batches(const PlannedRun& run) {
  RunOptions options = run.options;
  if (!has_other_batches(run) || !options.recorded_algorithms.empty()) {
    return std::nullopt;
  }
  if (options.device == "auto") {
    options.device = run.target.name;
  }
  options.gpus = run.target.gpus;
  // All ranks together have measured these bytes; one rank cannot measure them again.
  options.communicator_bytes = [bytes = run.target.communicator_bytes](Device&, int) { return bytes; };
  options.policy = run.plan.options.policy;
  options.memory_bytes = run.target.budget_bytes;
  options.gpu_reserve_bytes.reset();
  options.host_memory_bytes = run.target.host_budget_bytes;
  options.engine_timings.reset();
  options.engine_trial_seconds = 0;
  options.profile.reset();
  options.warn = {};
  return options;
}

// Returns nothing if `find` throws an error. `find` looks for a setting with which the run would fit. The
// message only suggests such settings, so it can leave one out.
template <class Find>
auto hint(const Find& find) -> decltype(find()) {
  try {
    return find();
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string milliseconds(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << seconds * 1e3 << " ms";
  return text.str();
}

OptionSetting batch_setting(std::int64_t batch) {
  return {.option = "model.batch", .value = std::to_string(batch)};
}

OptionSetting policy_setting(Policy policy) {
  return {.option = "policy", .value = to_string(policy)};
}

class WaysOutOf {
 public:
  explicit WaysOutOf(const PlannedRun& run) : run_(run) {}

  std::vector<WayOut> find() {
    add_batches();
    add_policy();
    add_other_algorithms();
    return std::move(ways_);
  }

 private:
  void add(std::vector<OptionSetting> settings, std::string effect = "") {
    ways_.push_back({.settings = std::move(settings), .effect = std::move(effect)});
  }

  void add_batches() {
    const std::optional<RunOptions> options = options_of_other_batches(run_);
    if (!options) {
      return;
    }
    const auto batch = hint([&] { return find_smaller_batch(run_, *options); });
    if (!batch) {
      return;
    }
    add({batch_setting(*batch)});
    if (const auto shared = hint([&] { return accumulated(*options, *batch); })) {
      add({batch_setting(shared->model.batch),
           {.option = "training.micro_steps", .value = std::to_string(shared->training.micro_steps)}},
          "with the same global batch");
    }
  }

  // Options with the same samples per update, in micro-steps of at most `most` samples. Tries the two largest
  // divisors of the batch. Returns nothing if neither fits, which is possible since accumulated gradients
  // need memory, too.
  std::optional<RunOptions> accumulated(RunOptions options, std::int64_t most) const {
    constexpr int kMostTries = 2;
    const std::int64_t batch = run_.batch();
    const std::uint32_t micro_steps = options.training.micro_steps;
    int tries = 0;
    for (std::int64_t part = most; part > 0 && tries < kMostTries; --part) {
      if (batch % part != 0) {
        continue;
      }
      ++tries;
      options.model.batch = part;
      options.training.micro_steps = micro_steps * static_cast<std::uint32_t>(batch / part);
      if (plan_run(options).fits()) {
        return options;
      }
    }
    return std::nullopt;
  }

  void add_policy() {
    if (run_.plan.options.policy == Policy::kOptimal || !run_.options.recorded_algorithms.empty()) {
      return;
    }
    if (const auto seconds = hint([&] { return optimal_step_seconds(run_.options.keep_algorithms); })) {
      add({policy_setting(Policy::kOptimal)}, "with a step of " + milliseconds(*seconds));
    }
  }

  void add_other_algorithms() {
    if (!run_.plan.options.keep_algorithms) {
      return;
    }
    if (const auto seconds = hint([&] { return optimal_step_seconds(false); })) {
      add({{.option = "keep_algorithms", .value = "false"}, policy_setting(Policy::kOptimal)},
          "with a step of " + milliseconds(*seconds));
    }
  }

  // The seconds of a step under `optimal`. Returns nothing if `optimal` does not fit either.
  std::optional<double> optimal_step_seconds(bool keep_algorithms) const {
    PlanOptions plan = plan_options(run_.options, Policy::kOptimal);
    plan.keep_algorithms = keep_algorithms;
    const PlannedRun optimal = plan_again(run_, plan, run_.target.budget_bytes);
    return optimal.fits() ? std::optional(optimal.prediction.step_seconds) : std::nullopt;
  }

  const PlannedRun& run_;
  std::vector<WayOut> ways_;
};

std::string default_budget(const BudgetShortage& shortage) {
  std::string text = "the default budget";
  if (!shortage.page_locked) {
    text += " of " + shortage.device;
  }
  text += ", " + format_size(shortage.budget_bytes);
  if (shortage.reserve_bytes > 0) {
    text += " besides " + format_size(shortage.reserve_bytes) + " kept back for CUDA's later allocations";
  }
  return text;
}

}  // namespace

// Returns for example "policy none on cpu needs 1.2 GiB more than memory_bytes = 4294967296: smallest budget
// 5.2 GiB (memory_bytes = 5582618624); model.batch = 48 fits; policy = optimal fits with a step of 40.1 ms".
std::string BudgetShortage::text(const SettingsInWords& in_words) const {
  const auto setting = [&](std::uint64_t bytes) {
    const OptionSetting budget{.option = page_locked ? "host_memory_bytes" : "memory_bytes",
                               .value = std::to_string(bytes)};
    return in_words(std::span(&budget, 1));
  };
  std::string result = "policy " + to_string(policy) + " on " + device + " needs " +
                       format_rounded_size(needed_bytes - std::min(needed_bytes, budget_bytes)) +
                       (page_locked ? " more page-locked memory than " : " more than ") +
                       (is_default ? default_budget(*this) : setting(budget_bytes)) +
                       (page_locked ? ": this plan needs " : ": smallest budget ") +
                       format_rounded_size(needed_bytes) + " (" + setting(needed_bytes) + ")";
  for (const WayOut& way : ways_out) {
    result += "; " + in_words(way.settings) + " fits" + (way.effect.empty() ? "" : " ") + way.effect;
  }
  if (!fullest_op.empty()) {
    result += "; most memory is in use at " + fullest_op;
  }
  return result;
}

DoesNotFit::DoesNotFit(BudgetShortage shortage)
    : OutOfMemory(shortage.text([](std::span<const OptionSetting> settings) { return to_string(settings); }),
                  shortage.needed_bytes, shortage.budget_bytes),
      shortage_(std::move(shortage)) {}

std::optional<BudgetShortage> find_shortage(const PlannedRun& run, WaysOut ways_out) {
  if (run.fits()) {
    return std::nullopt;
  }
  const RunTarget& target = run.target;
  BudgetShortage shortage{.policy = run.plan.options.policy, .device = target.name};
  if (run.prediction.peak_bytes + target.library_bytes > target.budget_bytes) {
    shortage.needed_bytes = run.smallest_budget_bytes();
    shortage.budget_bytes = target.budget_bytes;
    shortage.is_default = !run.options.memory_bytes;
    shortage.reserve_bytes = target.reserve_bytes;
    shortage.fullest_op = run.tape->op(fullest_op(*run.tape, run.schedule)).name;
  } else {
    shortage.page_locked = true;
    shortage.needed_bytes = run.prediction.host_bytes;
    shortage.budget_bytes = target.host_budget_bytes;
    shortage.is_default = !run.options.host_memory_bytes;
  }
  if (ways_out == WaysOut::kTold) {
    shortage.ways_out = WaysOutOf(run).find();
  }
  return shortage;
}

void require_fit(const PlannedRun& run, WaysOut ways_out) {
  if (std::optional<BudgetShortage> shortage = find_shortage(run, ways_out)) {
    throw DoesNotFit(*std::move(shortage));
  }
}

}  // namespace vdnn
