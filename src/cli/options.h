#pragma once
// The options of the commands, and what they become.

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/planned_run.h"

namespace vdnn {

// Options as typed: those that change the tape, the algorithms or the budgets. Shared by `train` and `plan`;
// what a schedule file keeps as its origin.
struct RunArguments {
  std::string model;  // empty where there is a step
  std::optional<std::string> step;
  std::optional<std::string> input;
  std::optional<std::int64_t> classes;
  std::optional<std::int64_t> batch;
  std::string device = "auto";
  std::optional<std::string> memory;
  std::optional<std::string> host_memory;
  std::optional<std::uint64_t> link_shared_by;
  std::optional<std::uint32_t> devices;
  std::optional<std::uint32_t> machines;
  std::uint32_t accumulate = 1;
  std::optional<std::string> bucket;
  std::optional<std::string> reduce_precision;
  bool sync_bn = false;
  std::optional<double> network_gbytes_per_s;
  std::optional<int> threads;
  std::string policy = "auto";
  std::string algorithms = "performance";
  std::optional<std::string> workspace_limit;
  bool keep_algorithms = false;
  bool tf32 = false;
  bool fp32 = false;
  std::optional<std::string> precision;
  std::optional<std::string> fp32_layers;
  std::optional<double> loss_scale;
  std::optional<std::string> engine_timings;
  std::optional<double> engine_trial_seconds;
  std::optional<std::string> profile;
  std::string optimizer = "sgd";
  std::optional<double> momentum;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> epsilon;
  double weight_decay = 0;
  std::optional<double> clip_norm;
  bool graph = false;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> resume;

  // Options that the first schedule files do not have: without them, a run was what it is by default.
  static constexpr std::array<std::string_view, 19> kLaterOptions{"step",
                                                                  "link-shared-by",
                                                                  "devices",
                                                                  "machines",
                                                                  "accumulate",
                                                                  "bucket",
                                                                  "reduce-precision",
                                                                  "sync-bn",
                                                                  "network-gbytes-per-s",
                                                                  "keep-algorithms",
                                                                  "tf32",
                                                                  "fp32",
                                                                  "precision",
                                                                  "fp32-layers",
                                                                  "loss-scale",
                                                                  "engine-timings",
                                                                  "engine-trial-seconds",
                                                                  "profile",
                                                                  "graph"};

  template <class Self, class Field>
  static void visit(Self& self, const Field& field) {
    field("model", self.model, models_help());
    field(
        "step", self.step,
        "in the place of a model: a step of a PyTorch program, as vdnn.torch.export() has written it; plans "
        "only offload");
    field("input", self.input, "CxHxW or CxDxHxW (default: the model's own)");
    field("classes", self.classes, "classes (default: the model's own)");
    field("batch", self.batch,
          "images that one device computes at once (default: 64; of a learned step its own)");
    field("device", self.device, "auto, cpu, cuda:N, sim:NAME or sim:FILE.json");
    field("memory", self.memory, "device budget, such as 512MiB (default: the device's memory)");
    field("host-memory", self.host_memory, "budget for page-locked memory");
    field("link-shared-by", self.link_shared_by,
          "so many of the machine's devices copy at once: predictions go by what the profile says of roots "
          "that they share (default: those that train together)");
    field("devices", self.devices,
          "so many devices of a machine train together, each with a batch of its own (default: 1, or as many "
          "as the launcher has started)");
    field("machines", self.machines,
          "in predictions: so many machines, each with these devices (default: 1)");
    field("accumulate", self.accumulate, "so many batches a device, one after the other, for each update");
    field("bucket", self.bucket,
          "sum the gradients of the devices in buckets of this size, while backward makes others (default: "
          "25MiB)");
    field("reduce-precision", self.reduce_precision,
          "fp32, bf16 or fp16: in which the gradients of the devices are summed (default: fp32); a narrow "
          "type sends half the bytes");
    field("network-gbytes-per-s", self.network_gbytes_per_s,
          "in predictions, of a machine among several: its network, 10^9 bytes a second each way (default: "
          "12.5)");
    field("sync-bn", self.sync_bn,
          "batch normalisation takes its statistics over the batches of all devices");
    field("threads", self.threads, "compute threads of cpu (default: all cores)");
    field("policy", self.policy, "auto, baseline, none, all, conv, dyn or optimal");
    field("algorithms", self.algorithms, "memory or performance; dyn and optimal choose for themselves");
    field("workspace-limit", self.workspace_limit, "most workspace of any op");
    field("keep-algorithms", self.keep_algorithms,
          "auto, dyn and optimal keep the algorithms of none in any budget, so that results have the same "
          "bits");
    field(
        "tf32", self.tf32,
        "cuda, and sim of GPUs that have it: convolutions and matrix products may round their inputs to TF32 "
        "(default, as in PyTorch: convolutions may, matrix products may not)");
    field("fp32", self.fp32, "convolutions and matrix products keep fp32: none rounds its inputs to TF32");
    field("precision", self.precision,
          "fp32, tf32, bf16 or fp16: of feature maps, their gradients, and the filters that multiply them "
          "(default: "
          "fp32, with products as --tf32 and --fp32 have it); parameters and their gradients stay fp32");
    field("fp32-layers", self.fp32_layers,
          "with bf16 or fp16: layers that keep fp32, by name or kind, separated by commas: "
          "fc3,batch_normalization");
    field("loss-scale", self.loss_scale,
          "with fp16: losses are multiplied by it at the start (default: 65536); it is halved when gradients "
          "overflow, "
          "which skips the update, and doubled after 2000 steps without that");
    field(
        "engine-timings", self.engine_timings,
        "cuda: time all engines of convolutions, keep the times in this file, and take the fastest (default: "
        "dyn and optimal time those that they could choose, and keep the times in the user's cache)");
    field("engine-trial-seconds", self.engine_trial_seconds,
          "cuda: time engines for so many seconds at most (default: 60, or, with --engine-timings, without "
          "limit); 0: dyn and optimal time none");
    field("profile", self.profile,
          "costs that `vdnn profile` has written of this run: predictions go by them, and where they were "
          "measured the preference `performance`, too");
    field("optimizer", self.optimizer, "sgd, adam or adamw");
    field("momentum", self.momentum, "of sgd (default: 0.9)");
    field("beta1", self.beta1, "of adam and adamw (default: 0.9)");
    field("beta2", self.beta2, "of adam and adamw (default: 0.999)");
    field("epsilon", self.epsilon, "of adam and adamw (default: 1e-8)");
    field("weight-decay", self.weight_decay, "of all parameters");
    field("clip-norm", self.clip_norm, "scale gradients down to this norm (default: never)");
    field("graph", self.graph, "capture steps as graphs and replay them (cuda:N)");
    field("seed", self.seed, "of initial weights, dropout and data (default: 1, or the checkpoint's)");
    field("resume", self.resume,
          "go on from this checkpoint; data, augmentation, learning rate and its schedule are not in it: "
          "repeat their options");
  }

 private:
  static std::string models_help();
};

// What `train` takes besides.
struct TrainingArguments {
  std::string data;
  bool augment = false;
  std::optional<std::int64_t> crop_padding;
  double lr = 0.01;
  std::string lr_schedule = "constant";
  std::optional<std::uint64_t> epochs;
  std::optional<std::uint64_t> steps;
  std::optional<double> link_gbytes_per_s;
  bool deterministic = false;
  std::optional<std::string> save;
  std::optional<std::uint64_t> save_every;
  bool find_nan = false;
  bool allow_nan = false;
  std::optional<std::uint64_t> check_ranks;
  std::optional<std::uint64_t> replan_after;
  std::optional<std::uint64_t> replan_every;
  bool replan_algorithms = false;
  std::optional<std::string> learned;
  double progress_every = 30;

  template <class Self, class Field>
  static void visit(Self& self, const Field& field) {
    field("data", self.data, "fashion-mnist[:DIR], cifar10:DIR, images:DIR or synthetic");
    field("augment", self.augment, "show training images shifted and mirrored");
    field("crop-padding", self.crop_padding, "with --augment: pixels to shift by at most (default: 4)");
    field("lr", self.lr, "learning rate");
    field("lr-schedule", self.lr_schedule,
          "constant, step:EVERY[:FACTOR] or cosine[:FINAL_FRACTION], with ,warmup:STEPS behind it "
          "where wanted; EVERY and STEPS in steps (500) or epochs (30e)");
    field("epochs", self.epochs, "of the whole training, what a checkpoint has behind it included");
    field("steps", self.steps, "likewise, instead of epochs");
    field("link-gbytes-per-s", self.link_gbytes_per_s,
          "slow the copies of cpu to this many 10^9 bytes a second");
    field("deterministic", self.deterministic, "cpu always is");
    field("save", self.save, "write a checkpoint at the end");
    field("save-every", self.save_every, "and after each so many steps");
    field("find-nan", self.find_nan,
          "where a loss or the norm of the gradients is not finite: train the steps since the last "
          "checkpoint, or the start, once more, and print the first value that is not");
    field("allow-nan", self.allow_nan, "go on where one is not finite; the checkpoint is then not replaced");
    field("check-ranks", self.check_ranks,
          "after each so many steps, ranks compare their parameters bit for bit");
    field("replan-after", self.replan_after,
          "after so many steps of this run, plan the others anew with what they took; results stay the same");
    field("replan-every", self.replan_every, "likewise, after each so many steps");
    field("replan-algorithms", self.replan_algorithms,
          "with either: algorithms may be chosen anew, too; results may change then");
    field("learned", self.learned, "write what steps were seen to take to this file, for --profile");
    field(
        "progress-every", self.progress_every,
        "seconds from one line of progress to the next where the output is no terminal; 0: a line an epoch");
  }
};

// Where a command writes besides; empty: nowhere.
struct OutputArguments {
  std::string json;
  std::string trace;
  std::string schedule;
  std::string report;
  std::string svg;

  // To go over them alike.
  std::array<std::string, 5> all() const { return {json, trace, schedule, report, svg}; }
};

// Throws InvalidArgument that names the option and what it may be, also for options that do not belong
// together. What `resume` names is not looked at.
RunOptions to_run_options(const RunArguments& arguments);

// Throws InvalidArgument unless there is either a model or a learned step, and for options that a learned
// step does not have: it is what its program did.
void require_one_program(const RunArguments& arguments);

// Of --policy; `auto` is none. Throws InvalidArgument that lists the names.
std::optional<Policy> parse_policy(const std::string& text);
std::vector<std::string> policy_names();

// Of --precision.
std::vector<std::string> precision_names();

// The same run in each of `precisions`, names of --precision. Options that belong to narrow types or to fp16
// alone (--fp32-layers, --loss-scale) are those of the runs that have them; where none has, they are left in
// all, and to_run_options() refuses them.
std::vector<RunArguments> in_precisions(const RunArguments& arguments,
                                        const std::vector<std::string>& precisions);

// The arguments with what was left to defaults, the device or the policy filled in from the run: the
// configuration in force.
RunArguments in_force(const RunArguments& arguments, const PlannedRun& run);
// Throws InvalidArgument for options that do not belong together.
TrainingArguments in_force(const TrainingArguments& arguments);

// Throws InvalidArgument where an option is given: "OPTION: WHY".
template <class Value>
void require_not_given(const char* option, const std::optional<Value>& value, const std::string& why) {
  if (value) {
    throw InvalidArgument(std::string(option) + ": " + why);
  }
}

// Throws InvalidArgument for what is not a number from 0 to the largest float.
void require_finite(const char* option, double value);

// What an option names and the command may replace; absent: not given.
struct ReplacedFile {
  std::string option;
  std::optional<std::string> path;
  std::optional<std::string> previous = {};  // the one file read that it may be: a later state of the same
};

// What the command reads: checkpoint, profile, and the file of a device.
std::vector<std::optional<std::string>> files_read(const RunArguments& arguments);

// Throws InvalidArgument for what cannot be written, and for two outputs in one file, before anything else is
// done, whatever links lead there. None may be one of `inputs`, files that the command reads, but for what is
// replaced by a later state of the same.
void check_outputs(const OutputArguments& outputs, const std::vector<ReplacedFile>& replaced = {},
                   const std::vector<std::optional<std::string>>& inputs = {});

// Run arguments inside a schedule file: what `replay` makes the tape from again. A run that was resumed, or
// that chose by a profile, is replayed as one that was not: the schedule says which algorithms it has. A
// device that a file describes is named by the absolute path of that file.
nlohmann::ordered_json to_origin(const RunArguments& arguments, const PlannedRun& run);
// Throws DataError for what is not such an object.
RunArguments from_origin(const std::string& text);

}  // namespace vdnn
