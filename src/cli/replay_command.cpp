#include <fstream>

#include "src/cli/commands.h"
#include "src/cli/options.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "vdnn/error.h"
#include "vdnn/schedule_file.h"
#include "vdnn/trainer.h"

namespace vdnn {

namespace {

struct ReplayArguments {
  std::string file;
  std::string device;
  std::string memory;
  std::uint64_t steps = 3;
  std::uint64_t seed = 1;
  OutputArguments outputs;
};

std::ifstream open_schedule(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw DataError("cannot read the schedule " + path);
  }
  return file;
}

PlannedRun planned(const ReplayArguments& arguments) {
  std::ifstream first = open_schedule(arguments.file);
  RunOptions options = from_origin(read_schedule_origin(first));
  if (!arguments.device.empty()) {
    options.device = arguments.device;
  }
  if (!arguments.memory.empty()) {
    options.memory_bytes = parse_optional_size(arguments.memory);
  }
  return plan_run_with_schedule(options, [&](const Tape& tape) {
    std::ifstream file = open_schedule(arguments.file);
    return read_schedule(file, tape);
  });
}

void replay(const ReplayArguments& arguments) {
  check_outputs(arguments.outputs);
  const PlannedRun run = planned(arguments);
  std::ostream& out = people(arguments.outputs.json);
  print_run(out, run);
  nlohmann::ordered_json summary;
  if (run.target.simulated) {
    print_prediction(out, run);
    summary = plan_summary(run, arguments.seed);
  } else {
    const Dims& dims = run.network.type(run.network.input()).dims;
    const DatasetSplits data =
        open_dataset("synthetic", Dims(dims.begin() + 1, dims.end()), run.network.classes(), arguments.seed);
    Trainer trainer(run, data, {.seed = arguments.seed, .steps = arguments.steps});
    const TrainingResult result = trainer.train({});
    print_result(out, run, result);
    summary = train_summary(run, result, arguments.seed);
  }
  if (!arguments.outputs.json.empty()) {
    JsonLines(arguments.outputs.json).write(summary);
  }
}

}  // namespace

Command add_replay_command(CLI::App& app) {
  const auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* command = app.add_subcommand("replay", "Run a stored schedule on synthetic data");
  command->add_option("file", arguments->file, "a schedule written by `vdnn plan --schedule`")->required();
  command->add_option("--device", arguments->device, "auto, cpu or sim:NAME (default: as planned)");
  command->add_option("--memory", arguments->memory, "device budget (default: as planned)");
  command->add_option("--steps", arguments->steps)->capture_default_str();
  command->add_option("--seed", arguments->seed)->capture_default_str();
  command->add_option("--json", arguments->outputs.json, "write JSON lines");
  return [arguments] { replay(*arguments); };
}

}  // namespace vdnn
