#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/resume.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "src/report/sweep_chart.h"
#include "src/train/sweep.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

struct SweepArguments {
  RunArguments run;
  std::vector<std::string> policies;
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::uint64_t points = SweepOptions().points;
  OutputArguments outputs;
};

std::uint64_t parse_budget(const char* option, const std::string& text) {
  const std::uint64_t bytes = parse_size(text);
  if (bytes == 0) {
    throw InvalidArgument(std::string(option) + " " + text + ": has room for nothing");
  }
  return bytes;
}

SweepOptions to_sweep_options(const SweepArguments& arguments) {
  SweepOptions options{.points = arguments.points};
  if (arguments.from) {
    options.from_bytes = parse_budget("--from", *arguments.from);
  }
  if (arguments.to) {
    options.to_bytes = parse_budget("--to", *arguments.to);
  }
  if (!arguments.policies.empty()) {
    options.policies.clear();
  }
  for (const std::string& name : arguments.policies) {
    const std::optional<Policy> policy = parse_policy(name);
    if (!policy) {
      throw InvalidArgument("--policy auto: name the policies to compare");
    }
    options.policies.push_back(*policy);
  }
  return options;
}

nlohmann::ordered_json to_json(const SweepPoint& point, const PlannedRun& run) {
  return {{"type", "point"},
          {"device", run.target.name},
          {"simulated", run.target.simulated},
          {"policy", to_string(point.policy)},
          {"budget_bytes", point.budget_bytes},
          {"fits", point.fits},
          {"smallest_budget_bytes", point.smallest_budget_bytes},
          {"peak_bytes", point.peak_bytes},
          {"host_bytes", point.host_bytes},
          {"offload_bytes_per_step", point.offload_bytes},
          {"recomputed_ops", point.recomputed_ops},
          {"rates", rates_of(run)},
          {"predicted_step_seconds", point.step_seconds},
          {"stall_seconds", point.stall_seconds},
          {"oracle_step_seconds", point.oracle_step_seconds},
          {"lower_bound_step_seconds", point.lower_bound_step_seconds},
          {"over_oracle", point.over_oracle()},
          {"over_lower_bound", point.over_lower_bound()}};
}

// Of milliseconds, behind the point.
int digits_of(double seconds) {
  return seconds < 0.01 ? 3 : 1;
}

// Of one policy, one line for each budget from which on it does something else.
class PolicyTable {
 public:
  PolicyTable(std::ostream& out, const Sweep& sweep, Policy policy)
      : out_(out), sweep_(sweep), policy_(policy) {}

  void print() {
    out_ << "\npolicy " << to_string(policy_);
    const SweepPoint* above = nullptr;
    for (const SweepPoint& point : sweep_.points) {
      if (point.policy != policy_ || !point.fits) {
        continue;
      }
      if (above == nullptr) {
        print_head(point);
      }
      if (above == nullptr || point.peak_bytes != above->peak_bytes ||
          point.step_seconds != above->step_seconds) {
        print(point);
      }
      above = &point;
    }
    if (above == nullptr) {
      const SweepPoint& any = *std::ranges::find(sweep_.points, policy_, &SweepPoint::policy);
      out_ << ": does not fit into any of these budgets; it needs " << format_size(any.smallest_budget_bytes)
           << " and " << format_rounded_size(any.host_bytes) << " page-locked\n";
    }
  }

 private:
  void print_head(const SweepPoint& point) {
    out_ << ", smallest budget " << format_size(point.smallest_budget_bytes) << "\n"
         << std::setw(12) << "budget" << std::setw(12) << "step ms" << std::setw(13) << "over oracle"
         << std::setw(12) << "over bound" << std::setw(12) << "peak" << std::setw(12) << "offloaded"
         << std::setw(12) << "recomputed"
         << "\n";
  }
  void print(const SweepPoint& point) {
    out_ << std::setw(12) << format_rounded_size(point.budget_bytes) << std::setw(12)
         << std::setprecision(digits_of(point.step_seconds)) << point.step_seconds * 1e3
         << std::setprecision(1) << std::setw(11) << 100 * point.over_oracle() << " %" << std::setw(10)
         << 100 * point.over_lower_bound() << " %" << std::setw(12) << format_rounded_size(point.peak_bytes)
         << std::setw(12) << format_rounded_size(point.offload_bytes) << std::setw(12) << point.recomputed_ops
         << "\n";
  }

  std::ostream& out_;
  const Sweep& sweep_;
  Policy policy_;
};

void print(std::ostream& out, const Sweep& sweep, const std::vector<Policy>& policies) {
  const PlannedRun& run = sweep.last;
  out << run.network.name() << ", batch " << run.network.batch() << ", on " << run.target.name << " ("
      << (run.target.simulated ? "simulated; " : "") << "algorithms: " << run.algorithms_source() << ")\n"
      << std::fixed << std::setprecision(1)
      << "oracle (none with the fastest algorithms in unlimited memory; a plan that hides the next input's "
         "load "
         "can be below it) "
      << std::setprecision(digits_of(sweep.points.front().oracle_step_seconds))
      << sweep.points.front().oracle_step_seconds * 1e3 << std::setprecision(1)
      << " ms; a budget that changes nothing has no line\n";
  print_rates(out, run);
  for (const Policy policy : policies) {
    PolicyTable(out, sweep, policy).print();
  }
}

// Throws OutOfMemory, in terms of the options, where no point fits.
void require_any_fit(const Sweep& sweep) {
  if (std::ranges::any_of(sweep.points, &SweepPoint::fits)) {
    return;
  }
  const auto short_by = [](const SweepPoint& point, std::uint64_t needed, std::uint64_t budget,
                           const std::string& option, const char* what) {
    return OutOfMemory("no policy fits: " + to_string(point.policy) + " needs " +
                           format_rounded_size(needed - std::min(needed, budget)) + " more" + what +
                           " than " + option + " " + exact_size(budget) + ", and the others no less: " +
                           format_rounded_size(needed) + " (" + option + " " + exact_size(needed) + ")",
                       needed, budget);
  };
  const std::uint64_t largest = sweep.points.back().budget_bytes;
  const SweepPoint& least = *std::ranges::min_element(sweep.points, {}, &SweepPoint::smallest_budget_bytes);
  if (least.smallest_budget_bytes > largest) {
    throw short_by(least, least.smallest_budget_bytes, largest, "--to", "");
  }
  const SweepPoint& moved = *std::ranges::min_element(sweep.points, {}, &SweepPoint::host_bytes);
  throw short_by(moved, moved.host_bytes, sweep.last.target.host_budget_bytes, "--host-memory",
                 " page-locked memory");
}

// All policies and budgets are compared with the same algorithms and costs: what would be timed for some of
// the policies alone is timed for none.
void require_timings_for_limit(RunArguments& arguments) {
  if (arguments.engine_timings) {
    return;
  }
  if (arguments.engine_trial_seconds.value_or(0) > 0) {
    throw InvalidArgument(
        "--engine-trial-seconds: sweep compares all policies with the same costs and times engines only for "
        "--engine-timings");
  }
  arguments.engine_trial_seconds = 0;
}

void sweep(const SweepArguments& arguments) {
  check_outputs(arguments.outputs, {{"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  SweepOptions options = to_sweep_options(arguments);
  const std::optional<Checkpoint> checkpoint = open_checkpoint(arguments.run);
  RunArguments run_arguments = resumed(arguments.run, checkpoint);
  require_timings_for_limit(run_arguments);
  RunOptions run_options = to_run_options(run_arguments);
  run_options.policy = Policy::kOffloadNone;  // of what the budgets and policies are tried on
  const PlannedRun run = plan_from(checkpoint, run_options);
  std::optional<JsonLines> json;
  if (!arguments.outputs.json.empty()) {
    json.emplace(arguments.outputs.json);
    options.swept = [&](const SweepPoint& point) { write_output([&] { json->write(to_json(point, run)); }); };
  }
  const Sweep found = sweep_budgets(run, options);
  print(people(arguments.outputs), found, options.policies);
  if (!arguments.outputs.svg.empty()) {
    write_file(arguments.outputs.svg, [&](std::ostream& file) { write_sweep_chart(file, found); });
  }
  if (json) {
    const nlohmann::ordered_json summary =
        plan_summary(found.last, predict_scaling(found.last), in_force(run_arguments, found.last));
    write_output([&] { json->write(summary); });
  }
  require_any_fit(found);  // when everything is written
}

}  // namespace

Command add_sweep_command(CLI::App& app) {
  const auto arguments = std::make_shared<SweepArguments>();
  CLI::App* command =
      app.add_subcommand("sweep", "Say what memory buys: budget against time, without running it");
  add_options(*command, arguments->run);
  remove_options(*command, {"memory", "policy"});
  command->get_option("--model")->required();
  command
      ->add_option("--policy", arguments->policies,
                   "baseline, none, all, conv, dyn or optimal, one or several with commas (default: all but "
                   "baseline)")
      ->delimiter(',')
      ->check(require_text);
  add_option(*command, "from", arguments->from, "smallest budget (default: the least that optimal needs)");
  add_option(*command, "to", arguments->to,
             "largest budget (default: what none needs with its fastest algorithms)");
  add_option(*command, "points", arguments->points, "budgets, in equal ratios");
  add_option(*command, "json", arguments->outputs.json,
             "write JSON lines: each point, then a summary of the first policy in the largest budget");
  add_option(*command, "svg", arguments->outputs.svg, "draw the frontier");
  return [arguments] { sweep(*arguments); };
}

}  // namespace vdnn
