#include <fstream>

#include "src/cli/commands.h"
#include "src/cli/options.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "vdnn/chrome_trace.h"
#include "vdnn/error.h"
#include "vdnn/schedule_file.h"

namespace vdnn {

namespace {

struct PlanArguments {
  RunArguments run;
  OutputArguments outputs;
  bool print_schedule = false;
};

void require_written(std::ofstream& file, const std::string& path) {
  file.close();
  if (!file) {
    throw DataError("cannot write " + path);
  }
}

void plan(const PlanArguments& arguments) {
  check_outputs(arguments.outputs);
  RunOptions options = to_run_options(arguments.run);
  options.trace_prediction = !arguments.outputs.trace.empty();
  const PlannedRun run = plan_run(options);
  std::ostream& out = people(arguments.outputs);
  print_run(out, run);
  print_prediction(out, run);
  if (arguments.print_schedule) {
    print(out, *run.tape, run.schedule);
  }
  if (!arguments.outputs.schedule.empty()) {
    std::ofstream file(arguments.outputs.schedule);
    write_schedule(file, *run.tape, run.schedule, to_origin(run, arguments.run.seed).dump());
    require_written(file, arguments.outputs.schedule);
  }
  if (!arguments.outputs.trace.empty()) {
    std::ofstream file(arguments.outputs.trace);
    write_chrome_trace(file, "vdnn plan (simulated)", run.prediction.stream_names, run.prediction.trace);
    require_written(file, arguments.outputs.trace);
  }
  if (!arguments.outputs.json.empty()) {
    JsonLines(arguments.outputs.json).write(plan_summary(run, arguments.run.seed));
  }
}

}  // namespace

Command add_plan_command(CLI::App& app) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Say what training would take, without running it");
  add_run_options(*command, arguments->run);
  add_text(*command, "--json", arguments->outputs.json, "write JSON lines");
  add_text(*command, "--trace", arguments->outputs.trace, "write the predicted timeline as a Chrome trace");
  add_text(*command, "--schedule", arguments->outputs.schedule, "write the schedule");
  command->add_flag("--print-schedule", arguments->print_schedule,
                    "print the schedule, a line an instruction");
  return [arguments] { plan(*arguments); };
}

}  // namespace vdnn
