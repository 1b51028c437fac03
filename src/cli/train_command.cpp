#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "src/cli/commands.h"
#include "src/cli/options.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "vdnn/chrome_trace.h"
#include "vdnn/error.h"
#include "vdnn/progress.h"
#include "vdnn/trainer.h"

namespace vdnn {

namespace {

struct TrainArguments {
  RunArguments run;
  OutputArguments outputs;
  std::string data;
  std::string lr_schedule = "constant";
  float learning_rate = 0.01F;
  std::uint64_t epochs = 0;
  std::uint64_t steps = 0;
  std::optional<double> link_gbytes_per_second;
  bool deterministic = false;
};

TrainOptions to_train_options(const TrainArguments& arguments) {
  if (arguments.lr_schedule != "constant") {
    throw InvalidArgument("--lr-schedule '" + arguments.lr_schedule + "': this version has constant only");
  }
  require_finite("--lr", arguments.learning_rate);
  return {.learning_rate = arguments.learning_rate,
          .seed = arguments.run.seed,
          .epochs = arguments.epochs,
          .steps = arguments.steps,
          .link_gbytes_per_second = arguments.link_gbytes_per_second,
          .trace = !arguments.outputs.trace.empty()};
}

// Of one sample of the batch.
TrainingProgress to_progress(const StepReport& report, std::uint64_t budget_bytes) {
  const std::uint64_t index = report.step - 1;
  return {.epoch = index / report.steps_per_epoch + 1,
          .epochs = (report.steps + report.steps_per_epoch - 1) / report.steps_per_epoch,
          .step = index % report.steps_per_epoch + 1,
          .steps = report.steps_per_epoch,
          .loss = report.loss,
          .images_per_second = report.images_per_second,
          .memory_bytes = report.memory_bytes,
          .budget_bytes = budget_bytes,
          .stall_fraction = report.stall_fraction};
}

nlohmann::ordered_json to_json(const StepReport& report) {
  return {{"type", "step"},
          {"step", report.step},
          {"loss", report.loss},
          {"images_per_second", report.images_per_second},
          {"stall_fraction", report.stall_fraction}};
}

void write_trace(const std::string& path, const TrainingResult& result) {
  std::ofstream file(path);
  write_chrome_trace(file, "vdnn train", result.stream_names, result.trace);
  file.close();
  if (!file) {
    throw DataError("cannot write the trace to " + path);
  }
}

void train(const TrainArguments& arguments) {
  check_outputs(arguments.outputs);
  const RunOptions options = to_run_options(arguments.run);
  const TrainOptions train_options = to_train_options(arguments);
  const PlannedRun run = plan_run(options);
  const DatasetSplits data =
      open_dataset(dataset_options(run.network, arguments.data, arguments.run.seed));
  std::ostream& out = people(arguments.outputs);
  const bool terminal = isatty(&out == &std::cout ? STDOUT_FILENO : STDERR_FILENO) == 1;
  if (options.device == "auto") {
    spdlog::info("no GPU is driven by this version: device auto is cpu");
  }
  print_run(out, run);
  Trainer trainer(run, data, train_options);
  std::optional<JsonLines> json;
  if (!arguments.outputs.json.empty()) {
    json.emplace(arguments.outputs.json);
  }
  ProgressBar progress(out, terminal);
  const TrainingResult result = trainer.train([&](const StepReport& report) {
    progress.update(to_progress(report, run.target.budget_bytes));
    if (json) {
      json->write(to_json(report));
    }
  });
  progress.finish();
  print_result(out, run, result);
  if (!arguments.outputs.trace.empty()) {
    write_trace(arguments.outputs.trace, result);
    out << "trace of the last steps: " << arguments.outputs.trace << " (open in ui.perfetto.dev)\n";
  }
  if (json) {
    json->write(train_summary(run, result, arguments.run.seed));
  }
}

}  // namespace

Command add_train_command(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a network inside a memory budget");
  add_run_options(*command, arguments->run);
  add_text(*command, "--data", arguments->data, "fashion-mnist[:DIR] or synthetic")->required();
  auto* epochs = command->add_option("--epochs", arguments->epochs);
  command->add_option("--steps", arguments->steps)->excludes(epochs);
  command->add_option("--lr", arguments->learning_rate, "learning rate")->capture_default_str();
  command->add_option("--lr-schedule", arguments->lr_schedule)->capture_default_str();
  command->add_option("--link-gbytes-per-s", arguments->link_gbytes_per_second,
                      "slow the copies of cpu to this many 10^9 bytes a second");
  command->add_flag("--deterministic", arguments->deterministic, "cpu always is");
  add_text(*command, "--json", arguments->outputs.json, "write JSON lines");
  add_text(*command, "--trace", arguments->outputs.trace, "write a Chrome trace of the last steps");
  return [arguments] { train(*arguments); };
}

}  // namespace vdnn
