#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>

#include "src/train/max_batch.h"
#include "vdnn/error.h"
#include "vdnn/planned_run.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

std::string reserve_of(const RunTarget& target) {
  return target.reserve_bytes == 0 ? ""
                                   : ", beside " + format_size(target.reserve_bytes) +
                                         " of what is free that are kept back for what CUDA takes later";
}

// Options of the same run with other batches, of whose engines no times are taken. Nothing: its network or
// its algorithms are of this batch alone.
std::optional<RunOptions> options_of_other_batches(const PlannedRun& run) {
  RunOptions options = run.options;
  if (options.model.model != run.network.name() || !options.recorded_algorithms.empty()) {
    return std::nullopt;
  }
  if (options.device == "auto") {
    options.device = run.target.name;
  }
  options.gpus = run.target.gpus;
  // Ranks have measured this together, and are not here now.
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

// Of a run that cannot be planned otherwise nothing is said: these are hints.
template <class Find>
auto hint(const Find& find) -> decltype(find()) {
  try {
    return find();
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::int64_t> largest_batch(const PlannedRun& run) {
  const std::optional<RunOptions> options = options_of_other_batches(run);
  return options ? find_largest_batch(*options) : std::nullopt;
}

// Of a step of `optimal`; nothing: that is the policy already, or does not fit either.
std::optional<double> optimal_step_seconds(const PlannedRun& run) {
  if (run.plan.options.policy == Policy::kOptimal || !run.options.recorded_algorithms.empty()) {
    return std::nullopt;
  }
  const PlannedRun optimal = plan_again(run, Policy::kOptimal, run.target.budget_bytes);
  return optimal.fits() ? std::optional(optimal.prediction.step_seconds) : std::nullopt;
}

class Hints {
 public:
  explicit Hints(WaysOut names) : names_(names) {}

  void add(const char* option, const char* flag, const std::string& value, const std::string& why) {
    text_ += (text_.empty() ? "; ways out: " : "; ") +
             (names_ == WaysOut::kCommand ? flag + (" " + value) : option + (" = " + value)) + " (" + why +
             ")";
  }
  const std::string& text() const { return text_; }

 private:
  WaysOut names_;
  std::string text_;
};

std::string milliseconds(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << seconds * 1e3 << " ms";
  return text.str();
}

std::string ways_out_of(const PlannedRun& run, bool device_is_short, WaysOut names) {
  Hints hints(names);
  if (device_is_short) {
    const std::uint64_t bytes = run.smallest_budget_bytes();
    hints.add("memory_bytes", "--memory", std::to_string(bytes),
              "the smallest budget, " + format_rounded_size(bytes));
  } else {
    const std::uint64_t bytes = run.prediction.host_bytes;
    hints.add("host_memory_bytes", "--host-memory", std::to_string(bytes),
              "what this plan takes, " + format_rounded_size(bytes));
  }
  if (const auto batch = hint([&] { return largest_batch(run); })) {
    hints.add("model.batch", "--batch", std::to_string(*batch), "the largest that fits");
  }
  if (const auto seconds = hint([&] { return optimal_step_seconds(run); })) {
    hints.add("policy", "--policy", "optimal", "fits, with a step of " + milliseconds(*seconds));
  }
  return hints.text();
}

}  // namespace

void require_fit(const PlannedRun& run, WaysOut ways_out) {
  if (run.fits()) {
    return;
  }
  const bool device_is_short = run.prediction.peak_bytes + run.target.library_bytes > run.target.budget_bytes;
  const std::string policy = "policy " + to_string(run.plan.options.policy) + " on " + run.target.name;
  const std::string hints = ways_out == WaysOut::kUntold ? "" : ways_out_of(run, device_is_short, ways_out);
  if (device_is_short) {
    throw OutOfMemory(
        policy + " does not fit: its smallest_budget_bytes is " +
            std::to_string(run.smallest_budget_bytes()) + ", the budget " +
            std::to_string(run.target.budget_bytes) + reserve_of(run.target) + ", short by " +
            format_rounded_size(run.smallest_budget_bytes() -
                                std::min(run.smallest_budget_bytes(), run.target.budget_bytes)) +
            "; most memory is in use at " + run.tape->op(fullest_op(*run.tape, run.schedule)).name + hints,
        {.asked = run.smallest_budget_bytes(),
         .budget = run.target.budget_bytes,
         .would_have_fitted = run.target.budget_bytes});
  }
  throw OutOfMemory(policy + " does not fit into page-locked memory, short by " +
                        format_rounded_size(run.prediction.host_bytes - run.target.host_budget_bytes) + hints,
                    {.asked = run.prediction.host_bytes,
                     .budget = run.target.host_budget_bytes,
                     .would_have_fitted = run.target.host_budget_bytes});
}

}  // namespace vdnn
