#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "src/cli/commands.h"
#include "src/cli/exit_status.h"
#include "src/cli/json_fields.h"
#include "src/cli/metrics_server.h"
#include "src/cli/option_fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/ranks.h"
#include "src/cli/replan_lines.h"
#include "src/cli/resume.h"
#include "src/cli/signals.h"
#include "src/cli/summary.h"
#include "src/report/json_lines.h"
#include "src/report/live_metrics.h"
#include "src/report/tensorboard_events.h"
#include "vdnn/chrome_trace.h"
#include "vdnn/nonfinite.h"
#include "vdnn/progress.h"
#include "vdnn/trainer.h"

namespace vdnn {

namespace {

struct TrainArguments {
  RunArguments run;
  TrainingArguments training;
  OutputArguments outputs;
};

// Whether this rank writes files and text for all ranks, if there are several.
bool is_first(const ProcessGroup* processes) {
  return processes == nullptr || processes->rank() == 0;
}

bool is_terminal(int descriptor, const ProcessGroup* processes) {
  return isatty(descriptor) == 1 && (processes == nullptr || launcher_has_terminal(descriptor));
}

// The results of --save.
struct SavedSteps {
  std::optional<std::uint64_t> last;  // the step of this run's checkpoint
  bool refused = false;  // whether the last save was refused because values were not finite (--allow-nan)
};

// Called on the rank that writes.
void save(const TrainingArguments& training, Session& session, SavedSteps& saved) {
  try {
    write_output([&] { save_checkpoint(*training.save, session); });
    saved = {.last = session.steps(), .refused = false};
  } catch (const Diverged& error) {
    if (!training.allow_nan) {
      throw;
    }
    saved.refused = true;
    log_warning(error.what());
  }
}

// `saved` must outlive the user of the options.
TrainOptions to_train_options(const TrainArguments& arguments, ProcessGroup* processes, SavedSteps& saved) {
  const TrainingArguments& training = arguments.training;
  TrainOptions options{.learning_rate = training.lr,
                       .learning_rate_schedule = training.lr_schedule,
                       .epochs = training.epochs.value_or(0),
                       .steps = training.steps.value_or(0),
                       .session = {.seed = arguments.run.seed.value_or(1),
                                   .link_gbytes_per_second = training.link_gbytes_per_s},
                       .processes = processes,
                       .trace = !arguments.outputs.trace.empty()};
  options.compare_ranks_every = training.check_ranks.value_or(0);
  options.request = SignalRequests::take;
  options.allow_nonfinite = training.allow_nan;
  if (training.replan_after || training.replan_every) {
    options.replan =
        ReplanRule{.after_steps = training.replan_after.value_or(training.replan_every.value_or(0)),
                   .repeatedly = training.replan_every.has_value(),
                   .options = {.change_algorithms = training.replan_algorithms, .policy = {}}};
  }
  options.learn = training.learned.has_value();
  if (training.save) {
    options.save = [training, writes = is_first(processes), &saved](Session& session) {
      if (writes) {
        save(training, session, saved);
      }
    };
    options.save_every = training.save_every.value_or(0);
  }
  return options;
}

DatasetSplits open_data(const TrainArguments& arguments, const PlannedRun& run) {
  const TrainingArguments& training = arguments.training;
  DatasetOptions options = dataset_options(run.own_network(), training.data, arguments.run.seed.value_or(1));
  options.augment = training.augment;
  options.crop_padding = training.crop_padding.value_or(options.crop_padding);
  return open_dataset(options);
}

TrainingProgress to_progress(const StepReport& report, std::uint64_t budget_bytes) {
  const std::uint64_t index = report.step - 1;
  const std::uint64_t step = index % report.steps_per_epoch + 1;
  const std::uint64_t left = report.steps - report.step;
  return {
      .epoch = index / report.steps_per_epoch + 1,
      .epochs = (report.steps + report.steps_per_epoch - 1) / report.steps_per_epoch,
      .step = step,
      .steps = std::min(report.steps_per_epoch, step + left),
      .steps_left = left,
      .loss = report.loss,
      .images_per_second = report.images_per_second,
      .memory_bytes = report.memory_bytes,
      .budget_bytes = budget_bytes,
      .stall_fraction = report.stall_fraction,
      .loss_scale = report.loss_scaling ? std::optional<double>(report.loss_scaling->scale) : std::nullopt,
      .skipped_steps = report.loss_scaling ? report.loss_scaling->skipped_steps : 0};
}

void print_duration(std::ostream& out, const Trainer& trainer) {
  out << "trains for " << trainer.steps() << " steps; an epoch has " << trainer.steps_per_epoch()
      << std::endl;  // flushes for people who follow a log
}

nlohmann::ordered_json to_json(const StepReport& report) {
  return {{"type", "step"},
          {"step", report.step},
          {"loss", report.loss},
          {"images_per_second", report.images_per_second},
          {"stall_fraction", value_or_null(report.stall_fraction)},
          {"loss_scale", report.loss_scaling ? nlohmann::ordered_json(report.loss_scaling->scale) : nullptr},
          {"skipped_steps",
           report.loss_scaling ? nlohmann::ordered_json(report.loss_scaling->skipped_steps) : nullptr}};
}

// A separate function, so that the checkpoint's state is freed when it returns.
Trainer make_trainer(const TrainArguments& arguments, const PlannedRun& run, const DatasetSplits& data,
                     const std::optional<Checkpoint>& checkpoint, ProcessGroup* processes, SavedSteps& saved,
                     const std::function<void(const Replanning&)>& replanned) {
  TrainOptions options = to_train_options(arguments, processes, saved);
  options.replanned = replanned;
  if (checkpoint) {
    options.start = checkpoint->state(run);
  }
  return {run, data, options};
}

// The given arguments, completed from the checkpoint and the defaults.
TrainArguments completed(const TrainArguments& given, const std::optional<Checkpoint>& checkpoint) {
  TrainArguments arguments = given;
  arguments.run = resumed(given.run, checkpoint);
  arguments.training = in_force(given.training);
  return arguments;
}

// A step's scalars for TensorBoard, without unmeasured ones.
std::vector<ScalarEvent> to_scalars(const StepReport& report) {
  std::vector<ScalarEvent> scalars{{.tag = "loss", .value = report.loss},
                                   {.tag = "memory_bytes", .value = static_cast<double>(report.memory_bytes)},
                                   {.tag = "peak_bytes", .value = static_cast<double>(report.peak_bytes)}};
  if (report.images_per_second > 0) {
    scalars.push_back({.tag = "images_per_second", .value = report.images_per_second});
  }
  if (report.stall_seconds) {
    scalars.push_back({.tag = "stall_seconds", .value = *report.stall_seconds});
  }
  if (report.loss_scaling) {
    scalars.push_back({.tag = "loss_scale", .value = report.loss_scaling->scale});
    scalars.push_back(
        {.tag = "skipped_steps", .value = static_cast<double>(report.loss_scaling->skipped_steps)});
  }
  return scalars;
}

// Publishes the running training as the options request; on the first rank only.
class WatchedTraining {
 public:
  WatchedTraining(const TrainingArguments& training, const ProcessGroup* processes) {
    if (!is_first(processes)) {
      return;
    }
    if (training.tensorboard) {
      event_folder_ = training.tensorboard;
      try {
        check_event_folder(*event_folder_);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(std::string("--tensorboard: ") + error.what());
      }
    }
    if (training.metrics_port) {
      live_ = std::make_shared<LiveMetrics>();
      server_.emplace(training.metrics_address.value_or("127.0.0.1"),
                      static_cast<std::uint16_t>(*training.metrics_port), live_, log_warning);
    }
  }

  // Prints where people can watch the training.
  void print(std::ostream& out) const {
    if (server_) {
      out << "live: " << server_->url() << " (for Prometheus: " << server_->url() << "metrics)" << std::endl;
    }
  }
  // `step`: the step of the checkpoint, or 0.
  void start(const Trainer& trainer, std::uint64_t step) {
    const PlannedRun& run = trainer.run();
    metrics_ = {.model = run.options.model.model,
                .device = run.target.name,
                .policy = to_string(run.plan.options.policy),
                .ranks = run.options.training.ranks,
                .budget_bytes = run.target.budget_bytes};
    set_step(metrics_, step, trainer.steps(), trainer.steps_per_epoch());
    if (live_) {
      live_->start(metrics_);
    }
    if (event_folder_) {
      write_output([&] { events_.emplace(*event_folder_, step + 1); });
    }
  }
  void add(const StepReport& report) {
    add_step(metrics_, report);
    if (live_) {
      live_->publish(metrics_);
    }
    if (events_) {
      write_event(report);
    }
  }

 private:
  // Training continues if the disk is full, since it may still reach its checkpoint.
  void write_event(const StepReport& report) {
    try {
      events_->add(report.step, to_scalars(report));
    } catch (const DataError& error) {
      log_warning(std::string("--tensorboard: ") + error.what() + "; no more events are written");
      events_.reset();
    }
  }

  TrainingMetrics metrics_;
  std::shared_ptr<LiveMetrics> live_;
  std::optional<MetricsServer> server_;
  std::optional<std::string> event_folder_;
  std::optional<EventFile> events_;
};

// The options that must agree on all ranks. Defaults that depend on the machine, for example memory, may
// differ.
nlohmann::ordered_json to_be_agreed_on(const TrainArguments& arguments,
                                       const std::optional<Checkpoint>& checkpoint,
                                       const DatasetSplits& data) {
  nlohmann::ordered_json json = to_json(arguments.run);
  json.update(to_json(arguments.training));
  json["seed"] = arguments.run.seed.value_or(1);
  json["steps in the checkpoint"] = checkpoint ? checkpoint->info().step : 0;
  json["training samples"] = data.training->size();
  json["test samples"] = data.test ? data.test->size() : 0;
  return json;
}

// The state of a training run before its first step, in one process or on one of several ranks.
struct PreparedTraining {
  const TrainArguments& typed;      // from the command line, equal on all ranks
  const TrainArguments& given;      // of this rank
  const TrainArguments& arguments;  // completed
  const PlannedRun& run;
  const DatasetSplits& data;
  const std::optional<Checkpoint>& checkpoint;
  ProcessGroup* processes;
  std::ostream& out;
  WatchedTraining& watched;
};

void carry_out(const PreparedTraining& prepared, SavedSteps& saved);

// A launcher ends all ranks as soon as one exits with an error status. So if all ranks end for the same
// reason, the first rank reports it before any rank exits. Returns the text for the exception that ends this
// rank.
std::string say_before_the_end(const ProcessGroup* processes, const std::string& text) {
  if (processes == nullptr) {
    return text;
  }
  if (is_first(processes)) {
    spdlog::error("{}", text);
  }
  return "";
}

void wait_for_the_end(ProcessGroup* processes) {
  if (processes != nullptr) {
    processes->barrier("end");
  }
}

// Ends this rank and all others, whatever they are doing.
[[noreturn]] void end_job(ProcessGroup& processes, const Failure& failure) {
  processes.end_ranks(failure.text, failure.status);
  std::_Exit(failure.status);  // without MPI_Finalize, so that the launcher ends the other ranks
}

// The command that continues from --save with the steps that are left, at least one. It omits options that
// would overwrite files of this run (--json, --trace), and those that need more steps than are left.
std::string resuming_command(const TrainArguments& typed, std::uint64_t steps_left) {
  RunArguments run = typed.run;
  TrainingArguments training = typed.training;
  run.resume = training.save;
  if (training.replan_after.value_or(training.replan_every.value_or(0)) >= steps_left) {
    training.replan_after.reset();
    training.replan_every.reset();
    training.replan_algorithms = false;
  }
  if (steps_left < kFewestReplanSteps) {
    training.learned.reset();
  }
  return "vdnn train" + to_command_line(run) + to_command_line(training);
}

// Describes whether the completed steps are saved. If they are, prints how to continue.
std::string how_it_stopped(const PreparedTraining& prepared, const SavedSteps& saved, int signal,
                           std::uint64_t step, std::uint64_t steps) {
  const std::string what =
      std::string(signal == SIGINT ? "SIGINT" : "SIGTERM") + " after step " + std::to_string(step);
  if (!prepared.typed.training.save) {
    return what + "; nothing was saved: no --save was given";
  }
  if (saved.refused) {
    return what + "; the step was not saved: values are not finite";
  }
  prepared.out << "continue with: " << resuming_command(prepared.typed, steps - step) << std::endl;
  return what + ", which is saved";
}

// Requires that all output has been written.
[[noreturn]] void end_stopped(const PreparedTraining& prepared, const SavedSteps& saved, std::uint64_t step,
                              std::uint64_t steps) {
  const int signal = SignalRequests::ended_by().value_or(SIGTERM);
  const std::string left_to_say =
      say_before_the_end(prepared.processes, how_it_stopped(prepared, saved, signal, step, steps));
  wait_for_the_end(prepared.processes);
  throw Interrupted(left_to_say, signal);
}

// The state of the last checkpoint, or of step 0 if there is none. All ranks use the first rank's state,
// since only that rank writes checkpoints.
TrainingState last_state(const PreparedTraining& prepared, const SavedSteps& saved) {
  if (is_first(prepared.processes) && saved.last) {
    return Checkpoint(*prepared.arguments.training.save).state(prepared.run);
  }
  return prepared.checkpoint ? prepared.checkpoint->state(prepared.run) : describe_state(*prepared.run.tape);
}

TrainingState agreed_on(TrainingState state, ProcessGroup& processes) {
  for (std::uint64_t* const number : {&state.step, &state.seed}) {
    processes.broadcast(std::as_writable_bytes(std::span(number, 1)), 0, "the last checkpoint");
  }
  for (std::vector<ParameterValues>* const all : {&state.parameters, &state.optimizer}) {
    for (ParameterValues& one : *all) {
      one.values.resize(element_count(one.dims));
    }
  }
  return state;
}

// Trains again from the last checkpoint, or from the start.
void find_nan(const PreparedTraining& prepared, const SavedSteps& saved, std::uint64_t last_step) {
  SavedSteps nothing;
  TrainOptions options = to_train_options(prepared.arguments, prepared.processes, nothing);
  TrainingState start = last_state(prepared, saved);
  if (prepared.processes != nullptr) {
    start = agreed_on(std::move(start), *prepared.processes);
  }
  prepared.out << "looking for the first value that is not finite: repeating steps " << start.step + 1
               << " to " << last_step << std::endl;
  if (start.step > 0) {
    options.start = std::move(start);
  }
  const auto found = find_nonfinite(prepared.run, prepared.data, options, last_step);
  prepared.out << (found ? describe(*found) : "in the repetition all values were finite") << std::endl;
}

std::string divergence_text(const TrainingArguments& training, const SavedSteps& saved,
                            const Diverged& error) {
  return error.what() +
         std::string("; a lower --lr, warm-up or --clip-norm may help, --allow-nan continues") +
         (training.find_nan ? "" : ", --find-nan names the first value that is not finite") +
         (saved.last ? "; the checkpoint of step " + std::to_string(*saved.last) + " is kept" : "");
}

// Calls find_nan(), whose own failure must not replace that of the training. If one rank fails alone, the
// other ranks would wait for it. So the failing rank ends them with the status of the divergence.
void try_to_find_nan(const PreparedTraining& prepared, const SavedSteps& saved, const Diverged& error) {
  try {
    find_nan(prepared, saved, error.step());
  } catch (const std::exception& failure) {
    const std::string text = std::string("--find-nan: ") + failure.what();
    if (prepared.processes != nullptr) {
      end_job(*prepared.processes, {kExitDiverged, error.what() + ("; " + text)});
    }
    log_warning(text);
  }
}

// Called on all ranks, which have ended with the same step.
[[noreturn]] void end_diverged(const PreparedTraining& prepared, const SavedSteps& saved,
                               const Diverged& error) {
  const TrainingArguments& training = prepared.arguments.training;
  const std::string left_to_say =
      say_before_the_end(prepared.processes, divergence_text(training, saved, error));
  if (training.find_nan) {
    try_to_find_nan(prepared, saved, error);
  }
  wait_for_the_end(prepared.processes);
  throw Diverged(left_to_say, error.step());
}

// Trains in one process or as one of several ranks. `given` are this rank's arguments, `typed` those of the
// command line.
void train(const TrainArguments& typed, const TrainArguments& given, ProcessGroup* processes) {
  const OutputArguments& outputs = given.outputs;
  std::vector<ReplacedFile> files{{"--engine-timings", given.run.engine_timings}};
  OutputFolder event_folder;
  if (is_first(processes)) {  // other ranks may be on machines where the files cannot be written
    files.push_back({"--save", given.training.save, given.run.resume});
    files.push_back({"--learned", given.training.learned, given.run.profile});
    event_folder = {"--tensorboard", given.training.tensorboard};
  }
  check_outputs(outputs, files, files_read(given.run), event_folder);
  WatchedTraining watched(given.training, processes);
  std::ofstream nobody;
  std::ostream& out = is_first(processes) ? people(outputs) : nobody;
  watched.print(out);
  const std::optional<Checkpoint> checkpoint = open_checkpoint(given.run);
  const TrainArguments arguments = completed(given, checkpoint);
  RunOptions options = to_run_options(arguments.run);
  // Ranks join here only if all are on GPUs. If only some are, no rank waits for others that never join, and
  // require_agreement() reports the difference.
  if (processes != nullptr && all_on_gpus(arguments.run.device, *processes)) {
    options.communicator_bytes = [processes, training = options.training](Device& device, int gpu) {
      return measure_communicator(device, gpu, *processes, training);
    };
  }
  const PlannedRun run = plan_from(checkpoint, options, is_first(processes));
  const DatasetSplits data = open_data(arguments, run);
  if (processes != nullptr) {
    require_agreement(to_be_agreed_on(arguments, checkpoint, data), run.target, *processes);
  }
  if (arguments.run.device == "auto" && is_first(processes)) {
    spdlog::info("device auto is {}: {}", run.target.name, run.target.why);
  }
  print_run(out, run);
  if (is_first(processes)) {
    print_other_algorithms(out, run);
  }
  out << std::flush;
  require_fit(run, WaysOut::kTold);
  const PreparedTraining prepared{typed, given, arguments, run, data, checkpoint, processes, out, watched};
  SavedSteps saved;
  try {
    carry_out(prepared, saved);
  } catch (const Diverged& error) {
    end_diverged(prepared, saved, error);
  }
}

void carry_out(const PreparedTraining& prepared, SavedSteps& saved) {
  const TrainArguments& given = prepared.given;
  const TrainArguments& arguments = prepared.arguments;
  const PlannedRun& run = prepared.run;
  const DatasetSplits& data = prepared.data;
  const std::optional<Checkpoint>& checkpoint = prepared.checkpoint;
  ProcessGroup* const processes = prepared.processes;
  std::ostream& out = prepared.out;
  const OutputArguments& outputs = given.outputs;
  const bool terminal = is_terminal(&out == &std::cout ? STDOUT_FILENO : STDERR_FILENO, processes);
  std::optional<JsonLines> json;
  ProgressBar progress(out,
                       {.terminal = terminal, .seconds_between_lines = arguments.training.progress_every});
  Trainer trainer =
      make_trainer(arguments, run, data, checkpoint, processes, saved, [&](const Replanning& replanning) {
        progress.finish();
        print_replanning(out, replanning);
        if (json) {
          write_output([&] { json->write(to_json(replanning)); });
        }
      });
  print_duration(out, trainer);
  if (!outputs.json.empty()) {
    json.emplace(outputs.json);
  }
  prepared.watched.start(trainer, checkpoint ? checkpoint->info().step : 0);
  const SignalRequests signals;  // earlier signals end the process, since there is nothing to save
  const TrainingResult result = trainer.train([&](const StepReport& report) {
    if (json) {
      write_output([&] { json->write(to_json(report)); });
    }
    prepared.watched.add(report);
    progress.update(to_progress(report, run.target.budget_bytes));
  });
  progress.finish();
  print_result(out, trainer.run(), result);
  if (arguments.training.learned && is_first(processes) && result.learned) {
    const std::string& path = *arguments.training.learned;
    replace_file(path, to_text(result.learned.value()));
    out << "learned: " << path << " (for --profile)\n";
  }
  if (arguments.training.save && !saved.refused) {
    out << "checkpoint: " << *arguments.training.save << "\n";
  }
  if (json) {
    const nlohmann::ordered_json summary =
        train_summary(trainer.run(), result, in_force(arguments.run, run), arguments.training);
    write_output([&] { json->write(summary); });
  }
  if (!outputs.trace.empty()) {
    write_file(outputs.trace, [&](std::ostream& file) {
      write_chrome_trace(file, "vdnn train", result.stream_names, result.trace,
                         last_launch(*trainer.run().tape, trainer.run().schedule));
    });
    out << "trace of the last steps: " << outputs.trace << " (open in ui.perfetto.dev)\n";
  }
  if (result.stopped) {
    end_stopped(prepared, saved, result.last_step, trainer.steps());
  }
}

// Only the first rank writes files.
TrainArguments of_rank(const TrainArguments& given, ProcessGroup& processes) {
  TrainArguments arguments = given;
  arguments.run = arguments_of_rank(given.run, processes);
  if (processes.rank() != 0) {
    arguments.outputs = {};
  }
  return arguments;
}

void train(const TrainArguments& given) {
  hear_save_requests();  // call it first, since otherwise SIGUSR1 would end the process

  to_run_options(given.run);  // checks options once, so that not every rank reports the same error
  in_force(given.training);
  if (given.run.keep_algorithms && given.training.replan_algorithms) {
    throw InvalidArgument("--keep-algorithms and --replan-algorithms: give one of them");
  }
  start_ranks(given.run);
  const std::unique_ptr<ProcessGroup> processes = ProcessGroup::join();
  if (processes->size() == 1) {
    require_alone(given.run);
    train(given, given, nullptr);
    return;
  }
  try {
    train(given, of_rank(given, *processes), processes.get());
  } catch (const Interrupted&) {
    throw;  // all ranks end with the same step
  } catch (const Diverged&) {
    throw;  // here, too, all ranks end with the same step
  } catch (...) {
    end_job(*processes, current_failure());
  }
}

}  // namespace

Command add_train_command(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a network inside a memory budget");
  add_options(*command, arguments->run);
  add_options(*command, arguments->training);
  remove_options(*command, {"step"});  // only its program can run a learned step
  command->get_option("--model")->required();
  command->get_option("--data")->required();
  command->get_option("--steps")->excludes(command->get_option("--epochs"));
  add_option(*command, "json", arguments->outputs.json, "write JSON lines");
  add_option(*command, "trace", arguments->outputs.trace, "write a Chrome trace of the last steps");
  return [arguments] { train(*arguments); };
}

}  // namespace vdnn
