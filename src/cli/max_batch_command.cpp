#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "src/train/max_batch.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

struct MaxBatchArguments {
  RunArguments run;
  std::optional<std::string> overhead;
  std::optional<std::uint64_t> global_batch;
  OutputArguments outputs;
};

double parse_percent(const std::string& text) {
  double percent = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, percent);
  if (parsed.ec != std::errc() || std::string(parsed.ptr, end) != "%" || !std::isfinite(percent) ||
      percent < 0) {
    throw InvalidArgument("--overhead '" + text + "': write a percentage from 0% up, such as 10%");
  }
  return percent / 100;
}

nlohmann::ordered_json to_json(const BatchTrial& trial) {
  return {{"type", "batch"},
          {"batch", trial.run.network.batch()},
          {"accumulate", trial.run.options.training.micro_steps},
          {"accepted", trial.accepted},
          {"fits", trial.run.fits()},
          {"policy", to_string(trial.run.plan.options.policy)},
          {"smallest_budget_bytes", trial.run.smallest_budget_bytes()},
          {"host_bytes", trial.run.prediction.host_bytes},
          {"predicted_step_seconds", trial.run.prediction.step_seconds},
          {"oracle_step_seconds", trial.oracle_step_seconds}};
}

void print_trial(std::ostream& out, const BatchTrial& trial) {
  out << "batch " << trial.run.network.batch() << ": policy " << to_string(trial.run.plan.options.policy)
      << ", takes " << format_size(trial.run.smallest_budget_bytes()) << " and "
      << format_size(trial.run.prediction.host_bytes) << " page-locked, a step "
      << trial.run.prediction.step_seconds * 1e3 << " ms, " << 100 * trial.overhead() << " % above the oracle"
      << (trial.run.fits() ? "" : "; does not fit") << "\n";
}

PlannedRun print_max_batch(std::ostream& out, const MaxBatchOptions& options) {
  MaxBatch found = find_max_batch(options);
  print_run(out, found.largest.run);
  out << std::fixed << std::setprecision(1);
  print_trial(out, found.largest);
  print_trial(out, found.next);
  out << "largest batch: " << found.largest.run.network.batch() << "\n";
  return std::move(found.largest.run);
}

PlannedRun print_micro_batch(std::ostream& out, const MaxBatchOptions& options, std::uint64_t global_batch) {
  BatchTrial found = find_micro_batch(options, global_batch);
  print_run(out, found.run);
  out << std::fixed << std::setprecision(1);
  print_trial(out, found);
  out << "for a global batch of " << global_batch << ": --batch " << found.run.network.batch()
      << " --accumulate " << found.run.options.training.micro_steps << "\n";
  return std::move(found.run);
}

void max_batch(const MaxBatchArguments& arguments) {
  check_outputs(arguments.outputs, {{"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  if (arguments.global_batch && arguments.run.accumulate != 1) {
    throw InvalidArgument("--accumulate is what --global-batch asks for: give one of them");
  }
  RunArguments run_arguments = arguments.run;
  if (!run_arguments.engine_timings && !run_arguments.engine_trial_seconds) {
    run_arguments.engine_trial_seconds = 0;  // each batch has convolutions of its own
  }
  MaxBatchOptions options{.run = to_run_options(run_arguments)};
  options.run.warn = log_warning;
  if (arguments.overhead) {
    options.overhead = parse_percent(*arguments.overhead);
  }
  std::optional<JsonLines> json;
  if (!arguments.outputs.json.empty()) {
    json.emplace(arguments.outputs.json);
    options.tried = [&](const BatchTrial& trial) { write_output([&] { json->write(to_json(trial)); }); };
  }
  std::ostream& out = people(arguments.outputs);
  const PlannedRun run = arguments.global_batch ? print_micro_batch(out, options, *arguments.global_batch)
                                                : print_max_batch(out, options);
  if (json) {
    RunArguments chosen = run_arguments;
    chosen.batch = run.network.batch();
    chosen.accumulate = run.options.training.micro_steps;
    const nlohmann::ordered_json summary = plan_summary(run, predict_scaling(run), in_force(chosen, run));
    write_output([&] { json->write(summary); });
  }
}

}  // namespace

Command add_max_batch_command(CLI::App& app) {
  const auto arguments = std::make_shared<MaxBatchArguments>();
  CLI::App* command = app.add_subcommand("max-batch", "Say how large a batch fits, without running it");
  add_options(*command, arguments->run);
  // What these name is of one batch.
  remove_options(*command, {"batch", "profile", "resume"});
  command->get_option("--model")->required();
  add_option(*command, "overhead", arguments->overhead,
             "a step takes at most so much longer than with memory without end, such as 10%");
  add_option(*command, "global-batch", arguments->global_batch,
             "say instead with how many samples a device computes at once, and how often, where an update is "
             "to be of so many, all devices together");
  add_option(*command, "json", arguments->outputs.json, "write JSON lines: each batch tried, then a summary");
  return [arguments] { max_batch(*arguments); };
}

}  // namespace vdnn
