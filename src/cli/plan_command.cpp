#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/cli/commands.h"
#include "src/cli/json_fields.h"
#include "src/cli/option_fields.h"
#include "src/cli/option_flags.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/resume.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "src/report/plan_report.h"
#include "src/report/planning_problem.h"
#include "vdnn/chrome_trace.h"
#include "vdnn/error.h"
#include "vdnn/schedule_file.h"

namespace vdnn {

namespace {

struct PlanArguments {
  RunArguments run;
  OutputArguments outputs;
  bool print_schedule = false;
  bool ops = false;
};

// Writes the summary, after the lines of `--ops` if requested.
void write_summary(const PlanArguments& arguments, const PlannedRun& run,
                   const nlohmann::ordered_json& summary) {
  write_output([&] {
    JsonLines json(arguments.outputs.json);
    if (arguments.ops) {
      for (const nlohmann::ordered_json& line : planning_problem(run)) {
        json.write(line);
      }
    }
    json.write(summary);
  });
}

void plan(const PlanArguments& arguments) {
  if (arguments.ops && arguments.outputs.json.empty()) {
    throw InvalidArgument("--ops belongs to --json, which names the file");
  }
  require_one_program(arguments.run);
  if (arguments.run.step && !arguments.outputs.schedule.empty()) {
    throw InvalidArgument(
        "--schedule: schedules are for `vdnn replay`, and only its own program can run a learned step "
        "(--step); --print-schedule shows the schedule");
  }
  check_outputs(arguments.outputs, {{"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  const std::optional<Checkpoint> checkpoint = open_checkpoint(arguments.run);
  const RunArguments run_arguments = resumed(arguments.run, checkpoint);
  RunOptions options = to_run_options(run_arguments);
  options.trace_prediction = !arguments.outputs.trace.empty() || !arguments.outputs.report.empty();
  const PlannedRun run = plan_from(checkpoint, options);
  std::ostream& out = people(arguments.outputs);
  print_run(out, run);
  print_other_algorithms(out, run);
  const Scaling scaling = predict_scaling(run);
  print_prediction(out, run, scaling);
  if (arguments.print_schedule) {
    print(out, *run.tape, run.schedule);
  }
  if (!arguments.outputs.schedule.empty()) {
    write_file(arguments.outputs.schedule, [&](std::ostream& file) {
      write_schedule(file, *run.tape, run.schedule, to_origin(run_arguments, run).dump());
    });
  }
  if (!arguments.outputs.trace.empty()) {
    write_file(arguments.outputs.trace, [&](std::ostream& file) {
      write_chrome_trace(file, "vdnn plan (simulated)", run.prediction.stream_names, run.prediction.trace,
                         last_launch(*run.tape, run.schedule));
    });
  }
  const std::optional<BudgetShortage> lacking = find_shortage(run, WaysOut::kTold);
  if (!arguments.outputs.report.empty()) {
    write_file(arguments.outputs.report, [&](std::ostream& file) {
      write_plan_report(file, run, to_json(in_force(run_arguments, run)), lacking ? in_flags(*lacking) : "");
    });
  }
  if (!arguments.outputs.json.empty()) {
    write_summary(arguments, run, plan_summary(run, scaling, in_force(run_arguments, run)));
  }
  if (lacking) {  // thrown after everything is written
    throw DoesNotFit(*lacking);
  }
}

}  // namespace

Command add_plan_command(CLI::App& app) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command =
      app.add_subcommand("plan", "Predict the memory and time of training without running it");
  add_options(*command, arguments->run);
  add_option(*command, "json", arguments->outputs.json, "write JSON lines");
  command->add_flag("--ops", arguments->ops,
                    "with --json: also one line for the device, each value, and each op with all its "
                    "algorithms, for external planners");
  add_option(*command, "trace", arguments->outputs.trace, "write the predicted timeline as a Chrome trace");
  add_option(*command, "report", arguments->outputs.report,
             "write one HTML page that shows memory and streams over the step, and every decision");
  add_option(*command, "schedule", arguments->outputs.schedule, "write the schedule");
  command->add_flag("--print-schedule", arguments->print_schedule,
                    "print the schedule, one instruction per line");
  return [arguments] { plan(*arguments); };
}

}  // namespace vdnn
