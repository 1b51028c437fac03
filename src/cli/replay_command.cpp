#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "vdnn/error.h"
#include "vdnn/schedule_file.h"
#include "vdnn/trainer.h"

namespace vdnn {

namespace {

struct ReplayArguments {
  std::string file;
  std::optional<std::string> device;
  std::optional<std::string> memory;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> steps;
  std::optional<double> lr;
  OutputArguments outputs;
};

std::ifstream open_schedule(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw DataError("cannot read the schedule " + path);
  }
  return file;
}

// The arguments in the schedule file; those that were given to `replay` override them.
RunArguments run_arguments(const ReplayArguments& arguments) {
  std::ifstream file = open_schedule(arguments.file);
  RunArguments run = from_origin(read_schedule_origin(file));
  run.device = arguments.device.value_or(run.device);
  if (arguments.memory) {
    run.memory = arguments.memory;
  }
  if (arguments.seed) {
    run.seed = arguments.seed;
  }
  return run;
}

TrainingArguments training_arguments(const ReplayArguments& arguments) {
  TrainingArguments training{.data = "synthetic", .steps = arguments.steps.value_or(3)};
  training.lr = arguments.lr.value_or(training.lr);
  return in_force(training);
}

// Checks the file that describes the schedule's device, if there is one, since it may have moved.
void check_device_file(const ReplayArguments& arguments, const RunArguments& run) {
  const std::optional<std::string> file = device_file(run.device);
  check_outputs(arguments.outputs, {}, {file});
  if (file && !arguments.device && !std::ifstream(*file)) {
    throw InvalidArgument("schedule " + arguments.file + ": its device is described in " + *file +
                          ", which cannot be read; give its present path with --device sim:FILE.json");
  }
}

void replay(const ReplayArguments& arguments) {
  check_outputs(arguments.outputs, {}, {arguments.file, device_file(arguments.device.value_or(""))});
  const TrainingArguments training = training_arguments(arguments);
  const RunArguments asked = run_arguments(arguments);
  check_device_file(arguments, asked);
  RunOptions planned = to_run_options(asked);
  planned.warn = log_warning;
  const PlannedRun run = plan_run_with_schedule(planned, [&](const Tape& tape) {
    std::ifstream file = open_schedule(arguments.file);
    return read_schedule(file, tape);
  });
  if (run.target.simulated) {
    const std::string why = "nothing is trained on " + run.target.name;
    require_not_given("--steps", arguments.steps, why);
    require_not_given("--lr", arguments.lr, why);
  }
  const RunArguments options = in_force(asked, run);
  std::ostream& out = people(arguments.outputs);
  print_run(out, run);
  nlohmann::ordered_json summary;
  if (run.target.simulated) {
    const Scaling scaling = predict_scaling(run);
    print_prediction(out, run, scaling);
    summary = plan_summary(run, scaling, options);
  } else {
    require_fit(run, WaysOut::kUntold);
    const DatasetSplits data = open_dataset(dataset_options(run.own_network(), training.data, *options.seed));
    Trainer trainer(
        run, data,
        {.learning_rate = training.lr, .steps = *training.steps, .session = {.seed = *options.seed}});
    const TrainingResult result = trainer.train({});
    print_result(out, run, result);
    summary = train_summary(run, result, options, training);
  }
  if (!arguments.outputs.json.empty()) {
    write_output([&] { JsonLines(arguments.outputs.json).write(summary); });
  }
  require_fit(run, WaysOut::kUntold);  // after everything is written
}

}  // namespace

Command add_replay_command(CLI::App& app) {
  const auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* command = app.add_subcommand("replay", "Run a stored schedule on synthetic data");
  command->add_option("file", arguments->file, "a schedule written by `vdnn plan --schedule`")->required();
  add_option(*command, "device", arguments->device,
             "auto, cpu, cuda:N, sim:NAME or sim:FILE.json (default: as planned)");
  add_option(*command, "memory", arguments->memory, "device budget (default: as planned)");
  add_option(*command, "steps", arguments->steps, "number of steps (default: 3)");
  add_option(*command, "seed", arguments->seed, "seed of initial weights and data (default: as planned)");
  add_option(*command, "lr", arguments->lr, "learning rate (default: 0.01)");
  add_option(*command, "json", arguments->outputs.json, "write JSON lines");
  return [arguments] { replay(*arguments); };
}

}  // namespace vdnn
