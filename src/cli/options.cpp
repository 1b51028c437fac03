#include "src/cli/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/atomic_file.h"
#include "src/base/environment.h"
#include "src/base/json_text.h"
#include "src/base/near_names.h"
#include "src/cli/json_fields.h"
#include "src/report/output_path.h"
#include "vdnn/error.h"
#include "vdnn/size.h"
#include "vdnn/zoo.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kLargestPort = 65535;

Dims parse_dims(const std::string& text) {
  Dims dims;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    std::int64_t dim = 0;
    const auto parsed = std::from_chars(at, end, dim);
    if (parsed.ec != std::errc() || dim <= 0 || (parsed.ptr != end && *parsed.ptr != 'x') ||
        parsed.ptr + 1 == end) {
      throw InvalidArgument("--input '" + text + "': write CxHxW or CxDxHxW, each dimension at least 1");
    }
    dims.push_back(dim);
    at = parsed.ptr + 1;
  }
  return dims;
}

// The value of the choice that `text` names; choices are pairs of name and value.
template <class T, class Choices = std::initializer_list<std::pair<const char*, T>>>
T choose(const char* option, const std::string& text, const Choices& choices) {
  std::string known;
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (text == name) {
      return value;
    }
    known += known.empty() ? name : std::string(", ") + name;
    names.emplace_back(name);
  }
  throw InvalidArgument(std::string(option) + " '" + text + "' is unknown" + did_you_mean(text, names) +
                        "; use " + known);
}

template <class Choices>
std::vector<std::string> names_of(const Choices& choices) {
  std::vector<std::string> names;
  names.reserve(std::size(choices));
  for (const auto& [name, value] : choices) {
    names.emplace_back(name);
  }
  return names;
}

constexpr std::array<std::pair<const char*, std::optional<Policy>>, 7> kPolicies{
    {{"auto", std::nullopt},
     {"baseline", Policy::kBaseline},
     {"none", Policy::kOffloadNone},
     {"all", Policy::kOffloadAll},
     {"conv", Policy::kOffloadConv},
     {"dyn", Policy::kDynamic},
     {"optimal", Policy::kOptimal}}};

AlgorithmPreference parse_preference(const std::string& text) {
  return choose<AlgorithmPreference>(
      "--algorithms", text,
      {{"memory", AlgorithmPreference::kMemory}, {"performance", AlgorithmPreference::kPerformance}});
}

// Throws if the option, which `optimizer` does not have, is given.
void require_absent(const char* option, const std::optional<double>& value, const std::string& optimizer,
                    const char* owners) {
  if (value) {
    throw InvalidArgument(std::string(option) + " belongs to --optimizer " + owners + ", not to " +
                          optimizer);
  }
}

// Fills in the optimizer's parameters that were not given.
RunArguments with_defaults(RunArguments arguments) {
  const std::string& optimizer = arguments.optimizer;
  if (choose<bool>("--optimizer", optimizer, {{"sgd", false}, {"adam", true}, {"adamw", true}})) {
    require_absent("--momentum", arguments.momentum, optimizer, "sgd");
    arguments.beta1 = arguments.beta1.value_or(0.9);
    arguments.beta2 = arguments.beta2.value_or(0.999);
    arguments.epsilon = arguments.epsilon.value_or(1e-8);
  } else {
    require_absent("--beta1", arguments.beta1, optimizer, "adam and adamw");
    require_absent("--beta2", arguments.beta2, optimizer, "adam and adamw");
    require_absent("--epsilon", arguments.epsilon, optimizer, "adam and adamw");
    arguments.momentum = arguments.momentum.value_or(0.9);
  }
  arguments.seed = arguments.seed.value_or(1);
  return arguments;
}

float finite(const char* option, double value) {
  require_finite(option, value);
  return static_cast<float>(value);
}

OptimizerSpec to_optimizer(const RunArguments& arguments) {
  const float weight_decay = finite("--weight-decay", arguments.weight_decay);
  if (arguments.momentum) {
    return SgdSpec{.momentum = finite("--momentum", *arguments.momentum), .weight_decay = weight_decay};
  }
  return AdamSpec{.beta1 = finite("--beta1", arguments.beta1.value()),
                  .beta2 = finite("--beta2", arguments.beta2.value()),
                  .epsilon = finite("--epsilon", arguments.epsilon.value()),
                  .weight_decay = weight_decay,
                  .decoupled = arguments.optimizer == "adamw"};
}

constexpr double kGiga = 1e9;

// On all machines together.
constexpr std::uint64_t kMostRanks = 1U << 20U;

std::uint32_t checked_ranks(std::uint64_t devices, std::uint64_t machines) {
  if (devices < 1 || machines < 1 || devices * machines > kMostRanks) {
    throw InvalidArgument("--devices " + std::to_string(devices) + " --machines " + std::to_string(machines) +
                          ": at least 1 of each, at most " + std::to_string(kMostRanks) +
                          " devices in total");
  }
  return static_cast<std::uint32_t>(devices * machines);
}

constexpr std::array<std::pair<const char*, DataType>, 4> kPrecisions{{{"fp32", DataType::kF32},
                                                                       {"tf32", DataType::kF32},
                                                                       {"bf16", DataType::kBf16},
                                                                       {"fp16", DataType::kF16}}};

constexpr std::array<std::pair<const char*, DataType>, 3> kReducePrecisions{
    {{"fp32", DataType::kF32}, {"bf16", DataType::kBf16}, {"fp16", DataType::kF16}}};

DataType to_storage(const std::string& precision) {
  return choose<DataType>("--precision", precision, kPrecisions);
}

// The type of sums over ranks. TF32 is refused, since only products can have it.
DataType to_reduced(const std::string& precision) {
  if (precision == "tf32") {
    throw InvalidArgument(
        "--reduce-precision tf32: TF32 applies to products, not to sums; write fp32, bf16 or fp16");
  }
  return choose<DataType>("--reduce-precision", precision, kReducePrecisions);
}

PrecisionOptions to_precision(const RunArguments& arguments) {
  PrecisionOptions precision{.storage = to_storage(arguments.precision.value_or("fp32")), .fp32_layers = {}};
  if (arguments.fp32_layers) {
    if (!is_narrow(precision.storage)) {
      throw InvalidArgument(
          "--fp32-layers: belongs to --precision bf16 or fp16; otherwise all layers are fp32");
    }
    std::istringstream names(*arguments.fp32_layers);
    for (std::string name; std::getline(names, name, ',');) {
      precision.fp32_layers.push_back(name);
    }
  }
  return precision;
}

TrainingOptions to_training_options(const RunArguments& arguments) {
  TrainingOptions training{.optimizer = to_optimizer(arguments)};
  training.precision = to_precision(arguments);
  if (arguments.loss_scale) {
    if (!training.scales_losses()) {
      throw InvalidArgument("--loss-scale: belongs to --precision fp16");
    }
    training.loss_scaling.initial = finite("--loss-scale", *arguments.loss_scale);
    if (training.loss_scaling.initial == 0) {
      throw InvalidArgument("--loss-scale: a scale of 0 leaves nothing to learn from");
    }
  }
  if (arguments.clip_norm) {
    training.clip_norm = finite("--clip-norm", *arguments.clip_norm);
    if (*training.clip_norm == 0) {
      throw InvalidArgument("--clip-norm: a norm of 0 leaves nothing to learn from");
    }
  }
  training.ranks = checked_ranks(arguments.devices.value_or(1), arguments.machines.value_or(1));
  if (arguments.accumulate < 1) {
    throw InvalidArgument("--accumulate 0: must be at least 1");
  }
  training.micro_steps = arguments.accumulate;
  if (arguments.bucket) {
    training.bucket_bytes = parse_size(*arguments.bucket);
  }
  training.reduce_precision = to_reduced(arguments.reduce_precision.value_or("fp32"));
  training.sync_batch_normalization = arguments.sync_bn;
  return training;
}

template <class Integer>
void require_one_or_more(const char* option, const std::optional<Integer>& value) {
  if (value.value_or(1) < 1) {
    throw InvalidArgument(std::string(option) + " " + std::to_string(*value) + ": must be at least 1");
  }
}

// Whether products of fp32 factors may use TF32. Absent: the device's default.
std::optional<bool> to_tf32(const RunArguments& arguments) {
  const bool tf32 = arguments.tf32 || arguments.precision == "tf32";
  const bool fp32 = arguments.fp32 || arguments.precision == "fp32";
  if (tf32 && fp32) {
    throw InvalidArgument(arguments.precision ? "--precision " + *arguments.precision + " and --" +
                                                    (arguments.tf32 ? "tf32" : "fp32") + ": give one of them"
                                              : "--tf32 and --fp32: give one of them");
  }
  return tf32 || fp32 ? std::optional(tf32) : std::nullopt;
}

std::optional<std::uint64_t> parse_optional_size(const std::optional<std::string>& text) {
  return text ? std::optional(parse_size(*text)) : std::nullopt;
}

// Checks that a new file can be written beside the file that it replaces.
void check_replaced(const std::string& option, const std::string& path) {
  try {
    const AtomicFile file(path);
  } catch (const DataError& error) {
    throw InvalidArgument(option + ": " + error.what());
  }
}

// Options that apply to a learned step.
constexpr std::array<std::string_view, 8> kOptionsOfStep{
    "step", "batch", "device", "memory", "host-memory", "link-shared-by", "threads", "policy"};

// Null if a model is given.
std::shared_ptr<const LearnedStep> read_step(const RunArguments& arguments) {
  return arguments.step ? std::make_shared<const LearnedStep>(read_learned_step(*arguments.step)) : nullptr;
}

std::int64_t batch_in_force(const RunArguments& arguments, const LearnedStep* step) {
  return arguments.batch.value_or(step != nullptr ? batch_of(*step) : ModelOptions().batch);
}

namespace fs = std::filesystem;

// Returns the path with all links followed. If the file does not exist yet, follows the links to its
// directory.
fs::path place(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path);
  return fs::exists(path, error) ? absolute.lexically_normal() : fs::weakly_canonical(absolute, error);
}

// Whether two paths name the same file; links are followed. Devices are compared by name only: it does no
// harm if standard output and standard error are one terminal.
bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return (fs::is_regular_file(a, error) && fs::equivalent(a, b, error)) || place(a) == place(b);
}

// Whether `folder` is `path` or below it.
bool is_at_or_below(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(folder, error);
  const fs::path outer = fs::weakly_canonical(path, error);
  return !outer.empty() && std::ranges::mismatch(outer, inner).in1 == outer.end();
}

}  // namespace

std::string RunArguments::models_help() {
  std::string names;
  for (const std::string& name : model_names()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return "network of the zoo: " + names;
}

std::optional<Policy> parse_policy(const std::string& text) {
  return choose<std::optional<Policy>>("--policy", text, kPolicies);
}

std::vector<std::string> policy_names() {
  return names_of(kPolicies);
}

std::vector<std::string> precision_names() {
  return names_of(kPrecisions);
}

std::vector<RunArguments> in_precisions(const RunArguments& arguments,
                                        const std::vector<std::string>& precisions) {
  std::vector<DataType> storages;
  std::ranges::transform(precisions, std::back_inserter(storages), to_storage);
  const bool any_narrow = std::ranges::any_of(storages, is_narrow);
  const bool any_fp16 = std::ranges::count(storages, DataType::kF16) > 0;
  std::vector<RunArguments> runs(precisions.size(), arguments);
  for (std::size_t each = 0; each < precisions.size(); ++each) {
    runs[each].precision = precisions[each];
    if (any_narrow && !is_narrow(storages[each])) {
      runs[each].fp32_layers.reset();
    }
    if (any_fp16 && storages[each] != DataType::kF16) {
      runs[each].loss_scale.reset();
    }
  }
  return runs;
}

void require_one_program(const RunArguments& arguments) {
  if (arguments.model.empty() == !arguments.step) {
    throw InvalidArgument("--model and --step: give one of them, a network of the zoo or a learned step");
  }
  if (!arguments.step) {
    return;
  }
  const nlohmann::ordered_json defaults = to_json(RunArguments());
  const nlohmann::ordered_json given = to_json(arguments);
  for (const auto& [key, value] : given.items()) {
    std::string name = key;
    std::ranges::replace(name, '_', '-');
    if (value != defaults.at(key) && std::ranges::find(kOptionsOfStep, name) == kOptionsOfStep.end()) {
      throw InvalidArgument("--" + name + ": belongs to --model; a learned step (--step) is planned as its " +
                            "program ran it");
    }
  }
}

RunOptions to_run_options(const RunArguments& given) {
  const RunArguments arguments = with_defaults(given);
  const std::shared_ptr<const LearnedStep> step = read_step(arguments);
  require_one_or_more("--classes", arguments.classes);
  require_one_or_more("--link-shared-by", arguments.link_shared_by);
  require_one_or_more("--threads", arguments.threads);
  return {.model = {.model = arguments.model,
                    .input = parse_dims(arguments.input.value_or("")),
                    .classes = arguments.classes.value_or(0),
                    .batch = batch_in_force(arguments, step.get())},
          .step = step,
          .device = arguments.device,
          .memory_bytes = parse_optional_size(arguments.memory),
          .host_memory_bytes = parse_optional_size(arguments.host_memory),
          .link_shared_by = arguments.link_shared_by,
          .machines = arguments.machines.value_or(1),
          .network_bytes_per_second =
              arguments.network_gbytes_per_s.value_or(kNetworkBytesPerSecond / kGiga) * kGiga,
          .threads = arguments.threads.value_or(0),
          .policy = parse_policy(arguments.policy),
          .algorithms = parse_preference(arguments.algorithms),
          .workspace_limit = parse_optional_size(arguments.workspace_limit),
          .keep_algorithms = arguments.keep_algorithms,
          .tf32 = to_tf32(arguments),
          .engine_timings = arguments.engine_timings,
          .engine_cache = default_engine_cache(environment("XDG_CACHE_HOME"), environment("HOME")),
          .engine_trial_seconds = arguments.engine_trial_seconds,
          .profile = arguments.profile,
          .training = to_training_options(arguments),
          .graph = arguments.graph};
}

RunArguments in_force(const RunArguments& given, const PlannedRun& run) {
  RunArguments arguments = with_defaults(given);
  if (run.network) {
    const Dims& images = run.network->type(run.network->input()).dims;
    arguments.input = to_string(Dims(images.begin() + 1, images.end()));
    arguments.classes = run.network->classes();
  }
  arguments.batch = run.batch();
  arguments.device = run.target.name;
  arguments.memory = std::to_string(run.target.budget_bytes);
  arguments.host_memory = std::to_string(run.target.host_budget_bytes);
  arguments.machines = run.options.machines;
  arguments.devices = run.options.training.ranks / run.options.machines;
  arguments.bucket = std::to_string(run.options.training.bucket_bytes);
  arguments.reduce_precision = to_string(run.options.training.reduce_precision);
  arguments.network_gbytes_per_s = run.options.network_bytes_per_second / kGiga;
  arguments.threads = run.target.threads;
  arguments.policy = to_string(run.plan.options.policy);
  arguments.tf32 = run.precisions.matrix_products == ProductPrecision::kTf32;
  arguments.fp32 = run.precisions == ProductPrecisions();
  const DataType storage = run.options.training.precision.storage;
  arguments.precision = is_narrow(storage) ? std::optional<std::string>(to_string(storage)) : std::nullopt;
  return arguments;
}

TrainingArguments in_force(const TrainingArguments& given) {
  TrainingArguments arguments = given;
  require_finite("--lr", arguments.lr);
  require_finite("--progress-every", arguments.progress_every);
  require_one_or_more("--epochs", arguments.epochs);
  require_one_or_more("--steps", arguments.steps);
  require_one_or_more("--save-every", arguments.save_every);
  require_one_or_more("--check-ranks", arguments.check_ranks);
  if (arguments.find_nan && arguments.allow_nan) {
    throw InvalidArgument("--find-nan and --allow-nan: give one of them");
  }
  if (arguments.save_every && !arguments.save) {
    throw InvalidArgument("--save-every belongs to --save, which names the checkpoint");
  }
  if (arguments.replan_after && arguments.replan_every) {
    throw InvalidArgument("--replan-after and --replan-every: give one of them");
  }
  if (arguments.replan_algorithms && !arguments.replan_after && !arguments.replan_every) {
    throw InvalidArgument("--replan-algorithms belongs to --replan-after or --replan-every");
  }
  if (arguments.metrics_port > kLargestPort) {
    throw InvalidArgument("--metrics-port " + std::to_string(*arguments.metrics_port) +
                          ": must be from 0 to " + std::to_string(kLargestPort));
  }
  if (arguments.metrics_address && !arguments.metrics_port) {
    throw InvalidArgument("--metrics-address belongs to --metrics-port");
  }
  if (arguments.crop_padding && !arguments.augment) {
    throw InvalidArgument("--crop-padding belongs to --augment");
  }
  if (arguments.augment) {
    arguments.crop_padding = arguments.crop_padding.value_or(4);
  }
  return arguments;
}

void require_finite(const char* option, double value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (!(value >= 0 && value <= static_cast<double>(kLargest))) {
    std::ostringstream message;
    message << option << " " << value << ": must be a number from 0 to " << kLargest;
    throw InvalidArgument(message.str());
  }
}

std::vector<std::optional<std::string>> files_read(const RunArguments& arguments) {
  return {arguments.resume, arguments.profile, arguments.step, device_file(arguments.device)};
}

void check_outputs(const OutputArguments& outputs, const std::vector<ReplacedFile>& replaced,
                   const std::vector<std::optional<std::string>>& inputs, const OutputFolder& folder) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& path, const std::optional<std::string>& previous) {
    if (std::ranges::any_of(files, [&](const std::string& file) { return same_file(file, path); })) {
      throw InvalidArgument("two outputs are to be written to " + path);
    }
    if (folder.path && is_at_or_below(*folder.path, path)) {
      throw InvalidArgument(folder.option + " " + *folder.path + ": cannot be a folder, since " + path +
                            " is an output file");
    }
    files.push_back(path);
    if (previous && same_file(path, *previous)) {
      return;
    }
    for (const std::optional<std::string>& input : inputs) {
      if (input && same_file(path, *input)) {
        throw InvalidArgument("the input file " + *input + " is also an output (" + path +
                              "): write the output to another file");
      }
    }
  };
  for (const std::string& path : outputs.all()) {
    if (!path.empty()) {
      check_output_path(path);
      add(path, std::nullopt);
    }
  }
  for (const ReplacedFile& file : replaced) {
    if (file.path) {
      check_replaced(file.option, *file.path);
      add(*file.path, file.previous);
    }
  }
}

nlohmann::ordered_json to_origin(const RunArguments& arguments, const PlannedRun& run) {
  RunArguments origin = in_force(arguments, run);
  origin.resume.reset();
  origin.profile.reset();
  if (const std::optional<std::string> file = device_file(arguments.device)) {
    origin.device = file_device(fs::absolute(*file).lexically_normal().string());
  }
  if (run.options.profile && run.target.gpu && !origin.engine_timings) {
    origin.engine_trial_seconds = 0;  // a run with a profile uses no times of engines
  }
  return to_json(origin);
}

RunArguments from_origin(const std::string& text) {
  try {
    // One object of numbers and texts; depth 2 lets errors name a key whose value is nested by mistake.
    const auto json = parse_json_text<nlohmann::json>(text, 2);
    if (!json.is_object()) {
      throw DataError("it is not a JSON object of options");
    }
    auto arguments = from_json<RunArguments>(json);
    // In files older than --fp32, products were fp32 unless --tf32 was given.
    arguments.fp32 = json.contains("fp32") ? arguments.fp32 : !arguments.tf32;
    // In files older than --engine-trial-seconds, engines were timed only with --engine-timings.
    if (!json.contains("engine_trial_seconds") && !arguments.engine_timings) {
      arguments.engine_trial_seconds = 0;
    }
    if (arguments.resume) {
      throw DataError("'resume' is not allowed");
    }
    if (arguments.profile) {
      throw DataError("'profile' is not allowed");
    }
    if (arguments.step) {
      throw DataError("'step' is not allowed");
    }
    return arguments;
  } catch (const DataError& error) {
    throw DataError(std::string("schedule file: its origin is not a run of this command: ") + error.what());
  }
}

}  // namespace vdnn
