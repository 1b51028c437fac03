#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/cli/commands.h"
#include "src/cli/json_fields.h"
#include "src/cli/option_fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/summary.h"
#include "src/cli/table.h"
#include "src/report/json_lines.h"
#include "src/run/max_batch.h"
#include "src/run/scaling.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

struct MaxBatchArguments {
  RunArguments run;
  std::optional<std::string> overhead;
  std::optional<double> images_per_second;
  std::optional<std::uint64_t> global_batch;
  OutputArguments outputs;
};

double parse_percent(const std::string& text) {
  double percent = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, percent);
  if (parsed.ec != std::errc() || std::string(parsed.ptr, end) != "%" || !std::isfinite(percent) ||
      percent < 0) {
    throw InvalidArgument("--overhead '" + text + "': write a percentage from 0% up, for example 10%");
  }
  return percent / 100;
}

nlohmann::ordered_json to_json(const BatchTrial& trial) {
  return {{"type", "batch"},
          {"batch", trial.run.batch()},
          {"accumulate", trial.run.options.training.micro_steps},
          {"accepted", trial.accepted},
          {"fits", trial.run.fits()},
          {"policy", to_string(trial.run.plan.options.policy)},
          {"smallest_budget_bytes", trial.run.smallest_budget_bytes()},
          {"host_bytes", trial.run.prediction.host_bytes},
          {"rates", rates_of(trial.run)},
          {"predicted_step_seconds", trial.run.prediction.step_seconds},
          {"oracle_step_seconds", trial.oracle_step_seconds}};
}

nlohmann::ordered_json to_json(const char* row, const LargestBatch& found) {
  const PlannedRun& run = found.trial.run;
  nlohmann::ordered_json json{{"type", "largest_batch"},
                              {"row", row},
                              {"batch", run.batch()},
                              {"policy", to_string(run.plan.options.policy)},
                              {"peak_bytes", run.prediction.peak_bytes},
                              {"host_bytes", run.prediction.host_bytes},
                              {"rates", rates_of(run)},
                              {"predicted_step_seconds", run.prediction.step_seconds},
                              {"predicted_images_per_second", predict_scaling(run).images_per_second},
                              {"overhead", found.trial.overhead()},
                              {"next_batch", found.next},
                              {"limit", to_string(found.limit)}};
  if (found.limit == BatchLimit::kRefused) {
    json["refusal"] = found.refusal;
  }
  return json;
}

void print_trial(std::ostream& out, const BatchTrial& trial) {
  const PlannedRun& run = trial.run;
  out << std::fixed << std::setprecision(1) << "batch " << run.batch() << ": policy "
      << to_string(run.plan.options.policy) << ", peak " << format_size(run.prediction.peak_bytes) << " and "
      << format_size(run.prediction.host_bytes) << " page-locked, a step "
      << run.prediction.step_seconds * 1e3 << " ms, " << 100 * trial.overhead() << " % above the oracle"
      << (run.fits() ? "" : "; does not fit") << std::endl;  // flushes for people who watch
}

// Shows the current batch on a terminal until other text is printed.
class Looking {
 public:
  explicit Looking(bool shows) : shows_(shows) {}
  ~Looking() { clear(); }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;

  void show(std::int64_t batch) const {
    if (shows_) {
      std::cerr << "\r\x1b[Ktrying batch " << batch << std::flush;
    }
  }
  void clear() const {
    if (shows_) {
      std::cerr << "\r\x1b[K" << std::flush;
    }
  }

 private:
  bool shows_;
};

std::string why(const LargestBatch& found) {
  switch (found.limit) {
    case BatchLimit::kDeviceMemory:
      return "device memory";
    case BatchLimit::kHostMemory:
      return "page-locked memory";
    case BatchLimit::kOverhead:
      return "overhead";
    case BatchLimit::kRefused:
      break;
  }
  return "batch " + std::to_string(found.next) + ": " + found.refusal;
}

std::string with_digits(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value;
  return text.str();
}

Table::Row headings(const std::string& last) {
  return {"", "batch", "images/s", "step ms", "over the oracle", "device peak", "page-locked", last};
}

Table::Row row_of(const std::string& name, const BatchTrial& trial, const std::string& last) {
  const PlannedRun& run = trial.run;
  return {name,
          std::to_string(run.batch()),
          with_digits(predict_scaling(run).images_per_second),
          with_digits(run.prediction.step_seconds * 1e3),
          with_digits(100 * trial.overhead()) + " %",
          format_rounded_size(run.prediction.peak_bytes),
          format_rounded_size(run.prediction.host_bytes),
          last};
}

RunArguments chosen(const RunArguments& asked, const PlannedRun& run) {
  RunArguments arguments = asked;
  arguments.batch = run.batch();
  arguments.accumulate = run.options.training.micro_steps;
  arguments.policy = to_string(run.plan.options.policy);
  if (run.options.memory_bytes != to_run_options(asked).memory_bytes) {
    arguments.memory = std::to_string(run.options.memory_bytes.value());
  }
  return arguments;
}

// The command that predicts this run alone, as one line.
std::string plan_command(const RunArguments& asked, const PlannedRun& run) {
  RunArguments arguments = chosen(asked, run);
  if (!run.target.gpu || !run.network) {
    arguments.engine_trial_seconds.reset();
  }
  return "vdnn plan" + to_command_line(arguments) + "\n";
}

void print_setting(std::ostream& out, const PlannedRun& run) {
  out << run.tape->model() << " on " << run.target.name;
  if (run.target.simulated) {
    out << " (simulated: " << run.target.profile.source << "; algorithms: " << run.algorithms_source() << ")";
  }
  out << ", budget " << format_size(run.target.budget_bytes) << ", page-locked "
      << format_size(run.target.host_budget_bytes) << "\n";
  print_rates(out, run);
}

// The options and outputs of a search for a batch.
struct Inquiry {
  RunArguments arguments;  // without timing of engines
  MaxBatchOptions options;
  std::ostream& out;
  std::optional<JsonLines>& json;
};

void write(const Inquiry& inquiry, const nlohmann::ordered_json& line) {
  if (inquiry.json) {
    write_output([&] { inquiry.json->write(line); });
  }
}

PlannedRun print_largest(const Inquiry& inquiry, bool keeps_to_overhead) {
  const MaxBatch found = find_max_batch(inquiry.options);
  std::ostream& out = inquiry.out;
  print_setting(out, found.most.trial.run);
  const std::string within =
      "within " + with_digits(100 * inquiry.options.overhead.value_or(kDefaultOverhead)) + " %";
  Table table;
  table.add(headings("limited by"));
  std::string lines;
  const auto add = [&](const std::string& name, const char* key, const std::optional<LargestBatch>& row) {
    if (row) {
      table.add(row_of(name, row->trial, why(*row)));
      lines += plan_command(inquiry.arguments, row->trial.run);
      write(inquiry, to_json(key, *row));
    }
  };
  add("without offloading", "without_offloading", found.without_offloading);
  add(within, "within_overhead", found.within_overhead);
  add("the most that fits", "most", found.most);
  table.print(out);
  if (!found.without_offloading) {
    out << "without offloading, not even one sample fits\n";
  }
  if (!found.within_overhead) {
    out << within << ": none of the planned batches; the least overhead is "
        << with_digits(100 * found.least_overhead) << " %\n";
  }
  const LargestBatch& largest = keeps_to_overhead ? found.within_overhead.value() : found.most;
  out << "commands that show each row:\n" << lines << "largest batch: " << largest.trial.run.batch() << "\n";
  return largest.trial.run;
}

PlannedRun print_least_memory(const Inquiry& inquiry, double images_per_second) {
  BatchTrial found = find_least_memory(inquiry.options, images_per_second);
  print_setting(inquiry.out, found.run);
  Table table;
  table.add(headings("budget"));
  table.add(row_of("the least memory", found, format_size(found.run.target.budget_bytes)));
  table.print(inquiry.out);
  inquiry.out << "command that shows the row:\n" << plan_command(inquiry.arguments, found.run);
  return std::move(found.run);
}

PlannedRun print_micro_batch(const Inquiry& inquiry, std::uint64_t global_batch) {
  BatchTrial found = find_micro_batch(inquiry.options, global_batch);
  print_run(inquiry.out, found.run);
  print_rates(inquiry.out, found.run);
  inquiry.out << "for a global batch of " << global_batch << ": --batch " << found.run.batch()
              << " --accumulate " << found.run.options.training.micro_steps << "\n";
  return std::move(found.run);
}

void require_one_question(const MaxBatchArguments& arguments) {
  if (arguments.global_batch && arguments.run.accumulate != 1) {
    throw InvalidArgument(
        "--accumulate and --global-batch: give one of them, since --global-batch finds the other");
  }
  if (arguments.images_per_second && (arguments.global_batch || arguments.overhead)) {
    throw InvalidArgument("--images-per-second cannot be combined with --overhead or --global-batch");
  }
}

void require_batches_of_step(const MaxBatchArguments& arguments, const LearnedStep& step) {
  if (!step.batch) {
    throw InvalidArgument("--step " + *arguments.run.step +
                          ": the file has no number of samples; export it with its batch");
  }
  if (arguments.global_batch) {
    throw InvalidArgument(
        "--global-batch: belongs to --model; the program of a learned step accumulates gradients itself");
  }
}

void max_batch(const MaxBatchArguments& arguments) {
  require_one_program(arguments.run);
  check_outputs(arguments.outputs, {{"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  require_one_question(arguments);
  std::ostream& out = people(arguments.outputs);
  std::optional<JsonLines> json;
  Inquiry inquiry{.arguments = arguments.run, .options = {}, .out = out, .json = json};
  if (!inquiry.arguments.engine_timings && !inquiry.arguments.engine_trial_seconds) {
    inquiry.arguments.engine_trial_seconds = 0;  // each batch has other convolutions, which would need timing
  }
  inquiry.options.run = to_run_options(inquiry.arguments);
  inquiry.options.run.warn = log_warning;
  if (inquiry.options.run.step) {
    require_batches_of_step(arguments, *inquiry.options.run.step);
  }
  if (arguments.overhead) {
    inquiry.options.overhead = parse_percent(*arguments.overhead);
  }
  if (!arguments.outputs.json.empty()) {
    json.emplace(arguments.outputs.json);
  }
  const Looking looking(isatty(STDERR_FILENO) == 1);
  inquiry.options.looking_at = [&](std::int64_t batch) { looking.show(batch); };
  inquiry.options.tried = [&](const BatchTrial& trial) {
    looking.clear();
    print_trial(out, trial);
    write(inquiry, to_json(trial));
  };
  const PlannedRun run = arguments.global_batch ? print_micro_batch(inquiry, *arguments.global_batch)
                         : arguments.images_per_second
                             ? print_least_memory(inquiry, *arguments.images_per_second)
                             : print_largest(inquiry, arguments.overhead.has_value());
  if (json) {
    write(inquiry, plan_summary(run, predict_scaling(run), in_force(chosen(inquiry.arguments, run), run)));
  }
}

}  // namespace

Command add_max_batch_command(CLI::App& app) {
  const auto arguments = std::make_shared<MaxBatchArguments>();
  CLI::App* command = app.add_subcommand("max-batch", "Find the largest batch that fits, without running it");
  add_options(*command, arguments->run);
  // These options are for one batch.
  remove_options(*command, {"batch", "profile", "resume"});
  add_option(*command, "overhead", arguments->overhead,
             "most overhead of a step over unlimited memory (default: 10%)");
  add_option(*command, "images-per-second", arguments->images_per_second,
             "find instead the least memory in which some batch reaches this rate, all devices together");
  add_option(*command, "global-batch", arguments->global_batch,
             "find instead the batch per device, and the number of batches per update, that make up this "
             "many samples, all devices together");
  add_option(*command, "json", arguments->outputs.json,
             "write JSON lines: each batch planned in the budget, each row of the table, then a summary");
  return [arguments] { max_batch(*arguments); };
}

}  // namespace vdnn
