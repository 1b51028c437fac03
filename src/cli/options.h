#pragma once
// The options of the commands, and their translation into options of the library.

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

// Options as typed: those that change the tape, the algorithms or the budgets. `train` and `plan` share them,
// and a schedule file keeps them as its origin.
struct RunArguments {
  std::string model;  // empty if there is a step
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

  // Options that the earliest schedule files lack. The defaults of these options describe the runs of those
  // files.
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
    field("step", self.step,
          "instead of a model: a step of a PyTorch program, written by vdnn.torch.export(); plans only "
          "offload");
    field("input", self.input, "CxHxW or CxDxHxW (default: the model's own)");
    field("classes", self.classes, "classes (default: the model's own)");
    field("batch", self.batch,
          "images that one device computes at once (default: 64, or the learned step's own)");
    field("device", self.device, "auto, cpu, cuda:N, sim:NAME or sim:FILE.json");
    field("memory", self.memory, "device budget, for example 512MiB (default: the device's memory)");
    field("host-memory", self.host_memory, "budget for page-locked memory");
    field("link-shared-by", self.link_shared_by,
          "how many devices of the machine copy at once; predictions use the profile's rates for shared PCIe "
          "roots (default: as many as train together)");
    field("devices", self.devices,
          "how many devices of a machine train together, each with a batch of its own (default: 1, or as "
          "many as the launcher has started)");
    field("machines", self.machines,
          "for predictions: how many machines, each with these devices, train together (default: 1)");
    field("accumulate", self.accumulate,
          "how many batches each device computes, one after the other, for one update");
    field("bucket", self.bucket,
          "sum the gradients of the devices in buckets of this size, while backward computes others "
          "(default: 25MiB)");
    field("reduce-precision", self.reduce_precision,
          "fp32, bf16 or fp16: type in which gradients are summed over devices (default: fp32); bf16 and "
          "fp16 send half the bytes");
    field("network-gbytes-per-s", self.network_gbytes_per_s,
          "for predictions with several machines: each machine's network, 10^9 bytes per second each way "
          "(default: 12.5)");
    field("sync-bn", self.sync_bn,
          "batch normalisation computes its statistics over the batches of all devices");
    field("threads", self.threads, "compute threads of cpu (default: all cores)");
    field("policy", self.policy, "auto, baseline, none, all, conv, dyn or optimal");
    field("algorithms", self.algorithms, "memory or performance; dyn and optimal choose for themselves");
    field("workspace-limit", self.workspace_limit, "largest workspace of any op");
    field(
        "keep-algorithms", self.keep_algorithms,
        "auto, dyn and optimal use the algorithms of none in any budget, so that results have the same bits");
    field("tf32", self.tf32,
          "cuda, and simulated GPUs with TF32: convolutions and matrix products may round their inputs to "
          "TF32 (default, as in PyTorch: only convolutions may)");
    field("fp32", self.fp32,
          "convolutions and matrix products compute in fp32 and do not round their inputs to TF32");
    field(
        "precision", self.precision,
        "fp32, tf32, bf16 or fp16: type of feature maps, their gradients, and the filters that multiply them "
        "(default: fp32, with products by --tf32 or --fp32); parameters and their gradients stay fp32");
    field("fp32-layers", self.fp32_layers,
          "with bf16 or fp16: layers that keep fp32, by name or kind, separated by commas: "
          "fc3,batch_normalization");
    field("loss-scale", self.loss_scale,
          "with fp16: initial factor of the loss (default: 65536); halved when gradients overflow, which "
          "skips the update, and doubled after 2000 steps without overflow");
    field(
        "engine-timings", self.engine_timings,
        "cuda: time all engines of convolutions, keep the times in this file, and use the fastest (default: "
        "dyn and optimal time the engines that they could choose, and keep the times in the user's cache)");
    field("engine-trial-seconds", self.engine_trial_seconds,
          "cuda: most seconds to spend on timing engines (default: 60, or no limit with --engine-timings); "
          "0: dyn and optimal time none");
    field("profile", self.profile,
          "costs of this run, written by `vdnn profile`: predictions use them; if they were measured, "
          "--algorithms performance uses them, too");
    field("optimizer", self.optimizer, "sgd, adam or adamw");
    field("momentum", self.momentum, "momentum of sgd (default: 0.9)");
    field("beta1", self.beta1, "beta1 of adam and adamw (default: 0.9)");
    field("beta2", self.beta2, "beta2 of adam and adamw (default: 0.999)");
    field("epsilon", self.epsilon, "epsilon of adam and adamw (default: 1e-8)");
    field("weight-decay", self.weight_decay, "weight decay of all parameters");
    field("clip-norm", self.clip_norm, "scale gradients down to this norm (default: never)");
    field("graph", self.graph, "capture steps as graphs and replay them (cuda:N)");
    field("seed", self.seed, "seed of initial weights, dropout and data (default: 1, or the checkpoint's)");
    field("resume", self.resume,
          "continue from this checkpoint; it does not contain data, augmentation, learning rate or its "
          "schedule: give these options again");
  }

 private:
  static std::string models_help();
};

// Further options of `train`.
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
  std::optional<std::uint64_t> metrics_port;
  std::optional<std::string> metrics_address;
  std::optional<std::string> tensorboard;

  template <class Self, class Field>
  static void visit(Self& self, const Field& field) {
    field("data", self.data, "fashion-mnist[:DIR], cifar10:DIR, images:DIR or synthetic");
    field("augment", self.augment, "shift and mirror training images at random");
    field("crop-padding", self.crop_padding, "with --augment: pixels to shift by at most (default: 4)");
    field("lr", self.lr, "learning rate");
    field("lr-schedule", self.lr_schedule,
          "constant, step:EVERY[:FACTOR] or cosine[:FINAL_FRACTION], optionally followed by ,warmup:STEPS; "
          "EVERY and STEPS in steps (500) or epochs (30e)");
    field("epochs", self.epochs, "epochs of the whole training, including those before a checkpoint");
    field("steps", self.steps, "steps of the whole training, instead of epochs");
    field("link-gbytes-per-s", self.link_gbytes_per_s,
          "limit copies on cpu to this rate, in 10^9 bytes per second");
    field("deterministic", self.deterministic, "use deterministic algorithms only; cpu always does");
    field("save", self.save, "write a checkpoint at the end");
    field("save-every", self.save_every, "also write the checkpoint whenever this many steps have passed");
    field("find-nan", self.find_nan,
          "if a loss or the norm of the gradients is not finite: repeat the steps since the last checkpoint, "
          "or the start, and print the first value that is not finite");
    field("allow-nan", self.allow_nan,
          "continue when a loss or norm is not finite; the checkpoint is then not replaced");
    field("check-ranks", self.check_ranks,
          "whenever this many steps have passed, ranks compare their parameters bit for bit");
    field("replan-after", self.replan_after,
          "after this many steps of this run, plan the remaining steps anew with the measured times; results "
          "stay the same");
    field("replan-every", self.replan_every, "as --replan-after, but whenever this many steps have passed");
    field("replan-algorithms", self.replan_algorithms,
          "with --replan-after or --replan-every: also choose algorithms anew; results may change then");
    field("learned", self.learned, "write the measured times of steps to this file, for --profile");
    field("progress-every", self.progress_every,
          "seconds between lines of progress if the output is not a terminal; 0: one line per epoch");
    field("metrics-port", self.metrics_port,
          "show the training at this port of 127.0.0.1 while it runs: a page at /, figures for Prometheus at "
          "/metrics; 0: any free port, which is printed");
    field("metrics-address", self.metrics_address,
          "with --metrics-port: listen at this address instead; 0.0.0.0: anyone who can reach this machine "
          "can read the figures");
    field("tensorboard", self.tensorboard,
          "write loss, images per second, stalls and memory of each step to this folder, for TensorBoard");
  }
};

// Files that a command writes besides its text; empty: not written.
struct OutputArguments {
  std::string json;
  std::string trace;
  std::string schedule;
  std::string report;
  std::string svg;

  // All of them, for loops.
  std::array<std::string, 5> all() const { return {json, trace, schedule, report, svg}; }
};

// Throws InvalidArgument, which names the option and its valid values, also for options that do not belong
// together. Does not read the file that `resume` names.
RunOptions to_run_options(const RunArguments& arguments);

// Throws InvalidArgument unless exactly one of model and learned step is given, and for options that do not
// apply to a learned step, since its program has fixed them.
void require_one_program(const RunArguments& arguments);

// The value of --policy; absent for `auto`. Throws InvalidArgument, which lists the names.
std::optional<Policy> parse_policy(const std::string& text);
std::vector<std::string> policy_names();

// The values of --precision.
std::vector<std::string> precision_names();

// The same run in each of `precisions`, values of --precision. Options for narrow types or fp16 only
// (--fp32-layers, --loss-scale) stay in the runs to which they apply. If they apply to none, they stay in
// all, and to_run_options() refuses them.
std::vector<RunArguments> in_precisions(const RunArguments& arguments,
                                        const std::vector<std::string>& precisions);

// The configuration in force: the arguments, with values left to defaults, the device and the policy filled
// in from the run.
RunArguments in_force(const RunArguments& arguments, const PlannedRun& run);
// Throws InvalidArgument for options that do not belong together.
TrainingArguments in_force(const TrainingArguments& arguments);

// Throws InvalidArgument ("OPTION: WHY") if an option is given.
template <class Value>
void require_not_given(const char* option, const std::optional<Value>& value, const std::string& why) {
  if (value) {
    throw InvalidArgument(std::string(option) + ": " + why);
  }
}

// Throws InvalidArgument unless `value` is from 0 to the largest float.
void require_finite(const char* option, double value);

// A file that an option names and the command may replace; absent: not given.
struct ReplacedFile {
  std::string option;
  std::optional<std::string> path;
  // The only input file that `path` may name: its contents are replaced by a later state.
  std::optional<std::string> previous = {};
};

// A folder in which the command chooses file names; absent: not given.
struct OutputFolder {
  std::string option;
  std::optional<std::string> path;
};

// The files that the command reads: checkpoint, profile, learned step, and description of a device.
std::vector<std::optional<std::string>> files_read(const RunArguments& arguments);

// Throws InvalidArgument, before any other work, for an output that cannot be written and for two outputs in
// one file; links are followed. No output may be one of `inputs`, the files that the command reads, except
// one that a later state replaces. No output may have the path of `folder` or of a folder above it.
void check_outputs(const OutputArguments& outputs, const std::vector<ReplacedFile>& replaced = {},
                   const std::vector<std::optional<std::string>>& inputs = {},
                   const OutputFolder& folder = {});

// The run arguments in a schedule file, from which `replay` makes the tape again. They leave out --resume and
// --profile, since the schedule itself specifies the algorithms. A device that a file describes is named by
// the absolute path of that file.
nlohmann::ordered_json to_origin(const RunArguments& arguments, const PlannedRun& run);
// Throws DataError if `text` is not such an object.
RunArguments from_origin(const std::string& text);

}  // namespace vdnn
