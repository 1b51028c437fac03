#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/resume.h"
#include "src/cli/summary.h"
#include "src/cli/table.h"
#include "src/report/json_lines.h"
#include "src/report/sweep_chart.h"
#include "src/run/sweep.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

struct SweepArguments {
  RunArguments run;
  std::vector<std::string> policies;
  bool peers = false;
  std::vector<std::string> precisions;
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::uint64_t points = SweepOptions().points;
  OutputArguments outputs;
};

std::uint64_t parse_budget(const char* option, const std::string& text) {
  const std::uint64_t bytes = parse_size(text);
  if (bytes == 0) {
    throw InvalidArgument(std::string(option) + " " + text + ": must be more than 0");
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
  if (arguments.peers) {
    options.peers.assign(all_peers().begin(), all_peers().end());
    options.policies = {Policy::kOptimal, Policy::kOffloadNone};
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

using Json = nlohmann::ordered_json;

Json to_json(const SweepPoint& point, const PlannedRun& run) {
  return {{"type", "point"},
          {"device", run.target.name},
          {"simulated", run.target.simulated},
          {"policy", to_string(point.approach)},
          {"precision", run.network ? Json(point.precision) : Json()},
          {"product_precision", run.network ? to_json(point.product_precisions) : Json()},
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

std::string milliseconds(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(seconds < 0.01 ? 3 : 1) << seconds * 1e3;
  return text.str();
}

// The table of one approach: one line for each budget at which its plan changes.
class ApproachTable {
 public:
  ApproachTable(std::ostream& out, const Sweep& sweep, Approach approach)
      : out_(out), sweep_(sweep), approach_(approach) {}

  void print() {
    out_ << (std::holds_alternative<Policy>(approach_) ? "\npolicy " : "\npeer ") << to_string(approach_);
    const SweepPoint* above = nullptr;
    for (const SweepPoint& point : sweep_.points) {
      if (point.approach != approach_ || !point.fits) {
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
      const SweepPoint& any = *std::ranges::find(sweep_.points, approach_, &SweepPoint::approach);
      out_ << ": does not fit any of these budgets; it needs " << format_size(any.smallest_budget_bytes)
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
         << milliseconds(point.step_seconds) << std::setw(11) << 100 * point.over_oracle() << " %"
         << std::setw(10) << 100 * point.over_lower_bound() << " %" << std::setw(12)
         << format_rounded_size(point.peak_bytes) << std::setw(12) << format_rounded_size(point.offload_bytes)
         << std::setw(12) << point.recomputed_ops << "\n";
  }

  std::ostream& out_;
  const Sweep& sweep_;
  Approach approach_;
};

// A table of approaches and precisions: one line for each approach and budget, one column for each precision.
class PrecisionTable {
 public:
  explicit PrecisionTable(const Sweep& sweep) : sweep_(sweep) {}

  void print(std::ostream& out) {
    add("step ms", "budget", sweep_.precisions);
    for (const Approach approach : sweep_.approaches) {
      add_smallest_budgets(approach);
      add_steps(approach);
    }
    out << "\n";
    table_.print(out);
  }

 private:
  void add(const std::string& first, const std::string& second, const std::vector<std::string>& cells) {
    Table::Row row{first, second};
    row.insert(row.end(), cells.begin(), cells.end());
    table_.add(std::move(row));
  }

  // The index of the approach's first point; points are ordered by budget, approach and precision.
  std::size_t first_of(Approach approach) const {
    return static_cast<std::size_t>(std::ranges::find(sweep_.points, approach, &SweepPoint::approach) -
                                    sweep_.points.begin());
  }

  void add_smallest_budgets(Approach approach) {
    std::vector<std::string> cells;
    for (std::size_t each = 0; each < sweep_.precisions.size(); ++each) {
      cells.push_back(format_rounded_size(sweep_.points[first_of(approach) + each].smallest_budget_bytes));
    }
    add(to_string(approach), "smallest", cells);
  }

  void add_steps(Approach approach) {
    std::vector<std::string> above;
    const std::size_t points_a_budget = sweep_.approaches.size() * sweep_.precisions.size();
    for (std::size_t first = first_of(approach); first < sweep_.points.size(); first += points_a_budget) {
      std::vector<std::string> cells;
      for (std::size_t each = 0; each < sweep_.precisions.size(); ++each) {
        const SweepPoint& point = sweep_.points[first + each];
        cells.push_back(point.fits ? milliseconds(point.step_seconds) : "-");
      }
      const bool any_fits = std::ranges::any_of(cells, [](const std::string& cell) { return cell != "-"; });
      if (any_fits && cells != above) {
        add(to_string(approach), format_rounded_size(sweep_.points[first].budget_bytes), cells);
      }
      above = std::move(cells);
    }
  }

  const Sweep& sweep_;
  Table table_{Table::Last::kNumbers};
};

// "73.1", or "fp32 73.1, bf16 21.4".
std::string oracles_of(const Sweep& sweep) {
  std::string text;
  for (std::size_t each = 0; each < sweep.precisions.size(); ++each) {
    text += text.empty() ? "" : ", ";
    text += sweep.precisions.size() > 1 ? sweep.precisions[each] + " " : "";
    text += milliseconds(sweep.points[each].oracle_step_seconds);
  }
  return text;
}

void print(std::ostream& out, const Sweep& sweep) {
  const PlannedRun& run = sweep.last;
  out << run.tape->model() << ", batch " << run.batch() << ", on " << run.target.name << " ("
      << (run.target.simulated ? "simulated; " : "") << "algorithms: " << run.algorithms_source() << ")\n"
      << "oracle (none with the fastest algorithms in unlimited memory; a plan that hides the next input's "
         "load "
         "can be below it) "
      << oracles_of(sweep) << " ms; budgets that change nothing have no line\n"
      << std::fixed << std::setprecision(1);
  print_rates(out, run);
  if (sweep.precisions.size() > 1) {
    PrecisionTable(sweep).print(out);
    return;
  }
  for (const Approach approach : sweep.approaches) {
    ApproachTable(out, sweep, approach).print();
  }
}

// Throws OutOfMemory, in terms of the options, if no point fits.
void require_any_fit(const Sweep& sweep) {
  if (std::ranges::any_of(sweep.points, &SweepPoint::fits)) {
    return;
  }
  const auto short_by = [&](const SweepPoint& point, std::uint64_t needed, std::uint64_t budget,
                            const std::string& option, const char* what) {
    return OutOfMemory("no policy fits: '" + series_name(sweep, point) + "' needs " +
                           format_rounded_size(needed - std::min(needed, budget)) + " more" + what +
                           " than " + option + " " + exact_size(budget) + "; the least that suffices is " +
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

// The sweep compares all policies and budgets with the same algorithms and costs. Only with --engine-timings
// do all policies time engines. Without it, no engine is timed, and a time limit for timing engines is
// refused.
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

// The arguments of one run per precision. Without --precision there is one run in fp32 with the device's
// default for products.
std::vector<RunArguments> arguments_of_runs(const RunArguments& arguments,
                                            const std::vector<std::string>& precisions) {
  return precisions.empty() ? std::vector{arguments} : in_precisions(arguments, precisions);
}

// Checks the options of all runs before it plans any, so that an option that the device does not support is
// refused before any sweep.
std::vector<PlannedRun> plan_each(const std::optional<Checkpoint>& checkpoint,
                                  const std::vector<RunArguments>& arguments) {
  std::vector<RunOptions> options;
  std::ranges::transform(arguments, std::back_inserter(options), to_run_options);
  std::vector<PlannedRun> runs;
  for (RunOptions& each : options) {
    each.policy = Policy::kOffloadNone;  // the sweep varies budget and policy of this run
    runs.push_back(plan_from(checkpoint, each));
  }
  return runs;
}

// Leaves out conv and dyn by default; with --policy conv or dyn, an error states why they are not possible.
void keep_to_step(SweepOptions& options, const SweepArguments& arguments) {
  if (!arguments.precisions.empty()) {
    throw InvalidArgument(
        "--precision: belongs to --model; a learned step (--step) has its program's precision");
  }
  if (arguments.peers) {
    throw InvalidArgument(
        "--peers: belongs to --model; the ops of a learned step (--step) cannot be run again, as most peers "
        "do");
  }
  if (arguments.policies.empty()) {
    options.policies = {Policy::kOptimal, Policy::kOffloadNone, Policy::kOffloadAll};
  }
}

void sweep(const SweepArguments& arguments) {
  require_one_program(arguments.run);
  check_outputs(arguments.outputs, {{"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  SweepOptions options = to_sweep_options(arguments);
  if (arguments.run.step) {
    keep_to_step(options, arguments);
  }
  const std::optional<Checkpoint> checkpoint = open_checkpoint(arguments.run);
  RunArguments run_arguments = resumed(arguments.run, checkpoint);
  require_timings_for_limit(run_arguments);
  const std::vector<RunArguments> in_each = arguments_of_runs(run_arguments, arguments.precisions);
  const std::vector<PlannedRun> runs = plan_each(checkpoint, in_each);
  std::optional<JsonLines> json;
  if (!arguments.outputs.json.empty()) {
    json.emplace(arguments.outputs.json);
    options.swept = [&](const SweepPoint& point) {
      write_output([&] { json->write(to_json(point, runs.front())); });
    };
  }
  const Sweep found = sweep_budgets(runs, options);
  print(people(arguments.outputs), found);
  if (!arguments.outputs.svg.empty()) {
    write_file(arguments.outputs.svg, [&](std::ostream& file) { write_sweep_chart(file, found); });
  }
  if (json) {
    const nlohmann::ordered_json summary =
        plan_summary(found.last, predict_scaling(found.last), in_force(in_each.front(), found.last));
    write_output([&] { json->write(summary); });
  }
  require_any_fit(found);  // after everything is written
}

}  // namespace

Command add_sweep_command(CLI::App& app) {
  const auto arguments = std::make_shared<SweepArguments>();
  CLI::App* command =
      app.add_subcommand("sweep", "Predict step times over a range of budgets without running anything");
  add_options(*command, arguments->run);
  remove_options(*command, {"memory", "policy", "precision"});
  command
      ->add_option("--policy", arguments->policies,
                   "baseline, none, all, conv, dyn or optimal, or several separated by commas (default: all "
                   "but baseline; with --peers optimal and none; for a learned step optimal, none and all)")
      ->delimiter(',')
      ->check(require_text);
  command->add_flag("--peers", arguments->peers,
                    "compare with other programs' methods: checkpoint-blocks and checkpoint-sqrt (activation "
                    "checkpointing), save-on-cpu, offload-inputs and rotor");
  command
      ->add_option("--precision", arguments->precisions,
                   "fp32, tf32, bf16 or fp16, or several separated by commas, which one table and one chart "
                   "compare (default: fp32, with products by --tf32 or --fp32)")
      ->delimiter(',')
      ->check(require_text);
  add_option(*command, "from", arguments->from,
             "smallest budget (default: the least that optimal needs in any of the precisions)");
  add_option(
      *command, "to", arguments->to,
      "largest budget (default: what none needs with its fastest algorithms, in each of the precisions)");
  add_option(*command, "points", arguments->points, "number of budgets, spaced by equal ratios");
  add_option(
      *command, "json", arguments->outputs.json,
      "write JSON lines: each point, then a summary of the first policy in the first precision and the "
      "largest budget");
  add_option(*command, "svg", arguments->outputs.svg, "draw step time over budget as an SVG chart");
  return [arguments] { sweep(*arguments); };
}

}  // namespace vdnn
