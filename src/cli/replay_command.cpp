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
  std::optional<std::uint64_t> seed;  // absent: as planned
  float learning_rate = 0.01F;
  OutputArguments outputs;
};

std::ifstream open_schedule(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw DataError("cannot read the schedule " + path);
  }
  return file;
}

Origin origin_of(const std::string& path) {
  std::ifstream file = open_schedule(path);
  return from_origin(read_schedule_origin(file));
}

PlannedRun planned(const ReplayArguments& arguments, RunOptions options) {
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
  require_finite("--lr", arguments.learning_rate);
  const Origin origin = origin_of(arguments.file);
  const std::uint64_t seed = arguments.seed.value_or(origin.seed);
  const PlannedRun run = planned(arguments, origin.options);
  std::ostream& out = people(arguments.outputs);
  print_run(out, run);
  nlohmann::ordered_json summary;
  if (run.target.simulated) {
    print_prediction(out, run);
    summary = plan_summary(run, seed);
  } else {
    const DatasetSplits data = open_dataset(dataset_options(run.network, "synthetic", seed));
    Trainer trainer(run, data,
                    {.learning_rate = arguments.learning_rate, .seed = seed, .steps = arguments.steps});
    const TrainingResult result = trainer.train({});
    print_result(out, run, result);
    summary = train_summary(run, result, seed);
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
  add_text(*command, "--device", arguments->device, "auto, cpu or sim:NAME (default: as planned)");
  add_text(*command, "--memory", arguments->memory, "device budget (default: as planned)");
  command->add_option("--steps", arguments->steps)->capture_default_str();
  command->add_option("--seed", arguments->seed, "of initial weights and data (default: as planned)");
  command->add_option("--lr", arguments->learning_rate, "learning rate")->capture_default_str();
  add_text(*command, "--json", arguments->outputs.json, "write JSON lines");
  return [arguments] { replay(*arguments); };
}

}  // namespace vdnn
