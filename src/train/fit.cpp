#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "src/train/max_batch.h"
#include "vdnn/error.h"
#include "vdnn/planned_run.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Can plan_run() make the run with another batch? Not of a network that was handed to it, nor of a learned
// step that does not say its batch.
bool has_other_batches(const PlannedRun& run) {
  const RunOptions& options = run.options;
  return run.network ? options.model.model == run.network->name() : options.step->batch.has_value();
}

// Options of the same run with other batches, of whose engines no times are taken. Nothing: its network or
// its algorithms are of this batch alone.
std::optional<RunOptions> options_of_other_batches(const PlannedRun& run) {
  RunOptions options = run.options;
  if (!has_other_batches(run) || !options.recorded_algorithms.empty()) {
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

std::string milliseconds(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << seconds * 1e3 << " ms";
  return text.str();
}

// An option of RunOptions and of the command, in the terms of whoever is told.
struct Option {
  const char* field;
  const char* flag;
};
constexpr Option kMemory{"memory_bytes", "--memory"};
constexpr Option kHostMemory{"host_memory_bytes", "--host-memory"};
constexpr Option kBatch{"model.batch", "--batch"};
constexpr Option kMicroSteps{"training.micro_steps", "--accumulate"};
constexpr Option kPolicy{"policy", "--policy"};

class Terms {
 public:
  explicit Terms(WaysOut ways_out)
      : flags_(ways_out == WaysOut::kCommand || ways_out == WaysOut::kCommandBudgets) {}

  bool are_flags() const { return flags_; }
  std::string with_value(const Option& option, const std::string& value) const {
    return flags_ ? option.flag + (" " + value) : option.field + (" = " + value);
  }
  // So that it can be given just so.
  std::string with_bytes(const Option& option, std::uint64_t bytes) const {
    return with_value(option, flags_ ? exact_size(bytes) : std::to_string(bytes));
  }

 private:
  bool flags_;
};

// A budget, and what it would have to be.
struct Need {
  Option option;
  std::uint64_t bytes = 0;
  std::uint64_t budget_bytes = 0;
  std::string budget;  // for people
};

std::string device_budget(const PlannedRun& run, const Terms& terms) {
  const RunTarget& target = run.target;
  if (run.options.memory_bytes) {
    return terms.with_bytes(kMemory, target.budget_bytes);
  }
  return "the default budget of " + target.name + ", " + format_size(target.budget_bytes) +
         (target.reserve_bytes == 0
              ? ""
              : " beside " + format_size(target.reserve_bytes) + " kept back for what CUDA takes later");
}

std::string host_budget(const PlannedRun& run, const Terms& terms) {
  return run.options.host_memory_bytes ? terms.with_bytes(kHostMemory, run.target.host_budget_bytes)
                                       : "the default budget, " + format_size(run.target.host_budget_bytes);
}

// "1.2 GiB more than --memory 4GiB: smallest budget 5.2 GiB (--memory 5324MiB)"
std::string describe(const Need& need, const char* what, const char* enough, const Terms& terms) {
  return format_rounded_size(need.bytes - std::min(need.bytes, need.budget_bytes)) + what + " than " +
         need.budget + ": " + enough + " " + format_rounded_size(need.bytes) + " (" +
         terms.with_bytes(need.option, need.bytes) + ")";
}

class Hints {
 public:
  Hints(const PlannedRun& run, const Terms& terms) : run_(run), terms_(terms) {}

  // "; --batch 48 fits; --policy optimal fits with a step of 40.1 ms"
  std::string text() {
    add_batches();
    add_policy();
    add_other_algorithms();
    return std::move(text_);
  }

 private:
  void add(const std::string& way, const std::string& how = "") { text_ += "; " + way + " fits" + how; }

  void add_batches() {
    const std::optional<RunOptions> options = options_of_other_batches(run_);
    if (!options) {
      return;
    }
    const auto batch = hint([&] { return find_smaller_batch(run_, *options); });
    if (!batch) {
      return;
    }
    add(terms_.with_value(kBatch, std::to_string(*batch)));
    if (const auto shared = hint([&] { return accumulated(*options, *batch); })) {
      add(terms_.with_value(kBatch, std::to_string(shared->model.batch)) + (terms_.are_flags() ? " " : ", ") +
              terms_.with_value(kMicroSteps, std::to_string(shared->training.micro_steps)),
          " with the same global batch");
    }
  }

  // The same samples an update, in parts of at most `most`; nothing where the largest of them do not fit.
  // Micro-steps take memory, too.
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
    if (const auto seconds = hint([&] { return optimal_step_seconds(run_); })) {
      add(terms_.with_value(kPolicy, "optimal"), " with a step of " + milliseconds(*seconds));
    }
  }

  void add_other_algorithms() {
    if (!run_.plan.options.keep_algorithms) {
      return;
    }
    PlannedRun free = run_;
    free.options.keep_algorithms = false;
    if (const auto seconds = hint([&] { return optimal_step_seconds(free); })) {
      add(terms_.are_flags() ? "without --keep-algorithms, --policy optimal"
                             : "keep_algorithms = false, policy = optimal",
          " with a step of " + milliseconds(*seconds));
    }
  }

  // Nothing where `optimal` does not fit either.
  static std::optional<double> optimal_step_seconds(const PlannedRun& run) {
    const PlannedRun optimal = plan_again(run, Policy::kOptimal, run.target.budget_bytes);
    return optimal.fits() ? std::optional(optimal.prediction.step_seconds) : std::nullopt;
  }

  const PlannedRun& run_;
  const Terms& terms_;
  std::string text_;
};

}  // namespace

std::optional<OutOfMemory> shortage(const PlannedRun& run, WaysOut ways_out) {
  if (run.fits()) {
    return std::nullopt;
  }
  const Terms terms(ways_out);
  const bool told = ways_out == WaysOut::kOptions || ways_out == WaysOut::kCommand;
  const std::string hints = told ? Hints(run, terms).text() : "";
  const std::string policy =
      "policy " + to_string(run.plan.options.policy) + " on " + run.target.name + " needs ";
  if (run.prediction.peak_bytes + run.target.library_bytes > run.target.budget_bytes) {
    const Need need{kMemory, run.smallest_budget_bytes(), run.target.budget_bytes, device_budget(run, terms)};
    return OutOfMemory(policy + describe(need, " more", "smallest budget", terms) + hints +
                           "; most memory is in use at " +
                           run.tape->op(fullest_op(*run.tape, run.schedule)).name,
                       need.bytes, need.budget_bytes);
  }
  const Need need{kHostMemory, run.prediction.host_bytes, run.target.host_budget_bytes,
                  host_budget(run, terms)};
  return OutOfMemory(policy + describe(need, " more page-locked memory", "this plan takes", terms) + hints,
                     need.bytes, need.budget_bytes);
}

void require_fit(const PlannedRun& run, WaysOut ways_out) {
  if (const std::optional<OutOfMemory> error = shortage(run, ways_out)) {
    throw *error;
  }
}

}  // namespace vdnn
