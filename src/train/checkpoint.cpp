#include "vdnn/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "src/formats/flat_json.h"
#include "src/formats/safetensors_header.h"
#include "src/ops/loss_scaling.h"
#include "src/train/nonfinite_floats.h"
#include "vdnn/error.h"
#include "vdnn/sha256.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "vdnn-checkpoint";
constexpr const char* kReducePrecision = "reduce_precision";
constexpr std::string_view kVersion = "3";
constexpr std::string_view kVersionInFp32 = "2";  // files of this version have no precision
// Files of the first version have neither precision nor global batch.
constexpr std::string_view kFirstVersion = "1";

// --- metadata ----------------------------------------------------------------------------------------------

struct NamedNumber {
  const char* name;
  float* number;
};

std::vector<NamedNumber> numbers_of(SgdSpec& spec) {
  return {{"momentum", &spec.momentum}, {"weight_decay", &spec.weight_decay}};
}

std::vector<NamedNumber> numbers_of(AdamSpec& spec) {
  return {{"beta1", &spec.beta1},
          {"beta2", &spec.beta2},
          {"epsilon", &spec.epsilon},
          {"weight_decay", &spec.weight_decay}};
}

std::string kind_of(const SgdSpec& /*spec*/) {
  return "sgd";
}

std::string kind_of(const AdamSpec& spec) {
  return spec.decoupled ? "adamw" : "adam";
}

std::string optimizer_text(OptimizerSpec optimizer) {
  return std::visit(
      [](auto& spec) {
        FlatJson json{{"kind", kind_of(spec)}};
        for (const NamedNumber& named : numbers_of(spec)) {
          json.emplace(named.name, *named.number);
        }
        return write_flat_json(json);
      },
      optimizer);
}

std::string clip_text(const std::optional<float>& clip_norm) {
  return clip_norm ? json_text(*clip_norm) : "null";
}

std::string kind_of_device(const std::string& name) {
  return name.substr(0, name.find(':'));
}

FlatJson algorithms_of(const PlannedRun& run) {
  FlatJson algorithms;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    const Op& op = run.tape->op(id);
    if (op.recorded()) {
      algorithms.emplace(op.name, op.algorithms[run.schedule.algorithms[id]].name);
    }
  }
  return algorithms;
}

struct NamedScale {
  const char* name;
  float LossScale::*number;
};
constexpr std::array kScaleNumbers{NamedScale{"scale", &LossScale::scale},
                                   NamedScale{"good_steps", &LossScale::good_steps},
                                   NamedScale{"skipped_steps", &LossScale::skipped_steps}};

std::string loss_scale_text(const std::optional<LossScale>& scale) {
  if (!scale) {
    return "null";
  }
  FlatJson json;
  for (const NamedScale& named : kScaleNumbers) {
    json.emplace(named.name, (*scale).*named.number);
  }
  return write_flat_json(json);
}

// The separator is no comma, since names of layers may contain commas.
constexpr char kBetweenLayers = '\n';

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : std::string(1, kBetweenLayers)) + name;
  }
  return text;
}

SafetensorsMetadata metadata_of(const PlannedRun& run, const TrainingState& state,
                                const std::string& sha256) {
  SafetensorsMetadata metadata{{"format", std::string(kFormat)},
                               {"version", std::string(kVersion)},
                               {"model", run.tape->model()},
                               {"batch", std::to_string(run.batch())},
                               {"global_batch", std::to_string(run.global_batch())},
                               {"step", std::to_string(state.step)},
                               {"seed", std::to_string(state.seed)},
                               {"device", kind_of_device(run.target.name)},
                               {"threads", std::to_string(run.target.threads)},
                               {"algorithms_source", run.catalog->algorithms_source()},
                               {"optimizer", optimizer_text(run.options.training.optimizer)},
                               {"clip_norm", clip_text(run.options.training.clip_norm)},
                               {"precision", to_string(run.options.training.precision.storage)},
                               {"fp32_layers", joined(run.options.training.precision.fp32_layers)},
                               {"loss_scale", loss_scale_text(state.loss_scale)},
                               {"algorithms", write_flat_json(algorithms_of(run))},
                               {"sha256", sha256},
                               {"vdnn", VDNN_VERSION}};
  // A file has no such key if training sums gradients in fp32. Older files never have it.
  if (const DataType type = run.options.training.reduces_in(); is_narrow(type)) {
    metadata.emplace(kReducePrecision, to_string(type));
  }
  return metadata;
}

// Parses the metadata. At the end, a key that has not been read is an error.
class MetadataReader {
 public:
  MetadataReader(const fs::path& path, SafetensorsMetadata metadata)
      : path_(path), metadata_(std::move(metadata)) {}

  [[noreturn]] void reject(const std::string& problem) const {
    throw DataError("'" + path_.string() + "' is not a valid checkpoint: " + problem);
  }
  [[noreturn]] void reject(const char* key, const std::string& expected, const std::string& found) const {
    reject(std::string(key) + ": expected " + expected + ", found " + printable(found));
  }

  std::string text(const char* key) {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) {
      reject("its metadata have no '" + std::string(key) + "'");
    }
    return std::move(metadata_.extract(found).mapped());
  }

  template <class Integer>
  Integer number(const char* key) {
    const std::string value = text(key);
    Integer number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 0) {
      reject(key, "a number from 0 up", value);
    }
    return number;
  }

  OptimizerSpec optimizer(const char* key) {
    const std::string value = text(key);
    const FlatJson json = read_flat_json(value).value_or(FlatJson());
    const auto kind = json.find("kind");
    const std::string* const name = kind == json.end() ? nullptr : std::get_if<std::string>(&kind->second);
    OptimizerSpec optimizer = SgdSpec{};
    if (name != nullptr && (*name == "adam" || *name == "adamw")) {
      optimizer = AdamSpec{.decoupled = *name == "adamw"};
    } else if (name == nullptr || *name != "sgd") {
      reject(key, "an optimizer of the kind sgd, adam or adamw", value);
    }
    std::visit([&](auto& spec) { read_numbers(key, value, json, numbers_of(spec)); }, optimizer);
    return optimizer;
  }

  std::optional<float> optional_number(const char* key) {
    const std::string value = text(key);
    if (value == "null") {
      return std::nullopt;
    }
    float number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number)) {
      reject(key, "a number or null", value);
    }
    return number;
  }

  DataType floating_type(const char* key) {
    constexpr std::array kTypes{DataType::kF32, DataType::kF16, DataType::kBf16};
    const std::string value = text(key);
    const auto* const found =
        std::ranges::find_if(kTypes, [&](DataType type) { return value == to_string(type); });
    if (found == kTypes.end()) {
      reject(key, "fp32, fp16 or bf16", value);
    }
    return *found;
  }

  DataType floating_type_or_fp32(const char* key) {
    return metadata_.contains(key) ? floating_type(key) : DataType::kF32;
  }

  PrecisionOptions precision(const char* key, const char* exceptions) {
    PrecisionOptions precision{.storage = floating_type(key), .fp32_layers = {}};
    std::istringstream layers(text(exceptions));
    for (std::string layer; std::getline(layers, layer, kBetweenLayers);) {
      precision.fp32_layers.push_back(layer);
    }
    return precision;
  }

  // Rejects an impossible scale. With such a scale, training would skip every step and end without stating a
  // reason.
  std::optional<LossScale> loss_scale(const char* key, std::uint64_t steps) {
    const std::string value = text(key);
    if (value == "null") {
      return std::nullopt;
    }
    const FlatJson json = read_flat_json(value).value_or(FlatJson());
    LossScale scale;
    bool sound = json.size() == kScaleNumbers.size();
    for (const NamedScale& named : kScaleNumbers) {
      const auto found = json.find(named.name);
      const float* const number = found == json.end() ? nullptr : std::get_if<float>(&found->second);
      sound = sound && number != nullptr;
      if (sound) {
        scale.*named.number = *number;
      }
    }
    if (!sound || !ops::is_possible(scale, steps)) {
      reject(key, "null, or a scale above 0, good_steps, and skipped_steps of no more than the steps done",
             value);
    }
    return scale;
  }

  std::map<std::string, std::string> names(const char* key) {
    const std::string value = text(key);
    std::map<std::string, std::string> names;
    for (auto& [name, named] : read_flat_json(value).value_or(FlatJson())) {
      if (const auto* const text = std::get_if<std::string>(&named)) {
        names.emplace(name, *text);
      } else {
        names.clear();
        break;
      }
    }
    if (names.empty()) {
      reject(key, "a JSON object of names", value);
    }
    return names;
  }

  void require_nothing_else() const {
    if (!metadata_.empty()) {
      reject("its metadata have the unknown key " + printable(metadata_.begin()->first));
    }
  }

 private:
  void read_numbers(const char* key, const std::string& value, const FlatJson& json,
                    const std::vector<NamedNumber>& numbers) const {
    bool sound = json.size() == numbers.size() + 1;
    for (const NamedNumber& named : numbers) {
      const auto found = json.find(named.name);
      const float* const number = found == json.end() ? nullptr : std::get_if<float>(&found->second);
      sound = sound && number != nullptr;
      if (sound) {
        *named.number = *number;
      }
    }
    if (!sound) {
      std::string names;
      for (const NamedNumber& named : numbers) {
        names += std::string(" ") + named.name;
      }
      reject(key, "the kind and the numbers" + names, value);
    }
  }

  const fs::path& path_;
  SafetensorsMetadata metadata_;
};

CheckpointInfo read_info(const fs::path& path, const SafetensorsMetadata& metadata) {
  MetadataReader reader(path, metadata);
  if (const std::string format = reader.text("format"); format != kFormat) {
    reader.reject("format", std::string(kFormat), format);
  }
  const std::string version = reader.text("version");
  if (version != kVersion && version != kVersionInFp32 && version != kFirstVersion) {
    reader.reject("version", "1, 2 or 3", version);
  }
  CheckpointInfo info{
      .model = reader.text("model"),
      .batch = reader.number<std::int64_t>("batch"),
      .global_batch = version == kFirstVersion ? std::nullopt
                                               : std::optional(reader.number<std::uint64_t>("global_batch")),
      .step = reader.number<std::uint64_t>("step"),
      .seed = reader.number<std::uint64_t>("seed"),
      .device = reader.text("device"),
      .threads = reader.number<int>("threads"),
      .algorithms_source = reader.text("algorithms_source"),
      .optimizer = reader.optimizer("optimizer"),
      .clip_norm = reader.optional_number("clip_norm"),
      .precision = version == kVersion ? reader.precision("precision", "fp32_layers") : PrecisionOptions{},
      .algorithms = reader.names("algorithms"),
      .sha256 = reader.text("sha256"),
      .vdnn_version = reader.text("vdnn")};
  if (version == kVersion) {
    info.loss_scale = reader.loss_scale("loss_scale", info.step);
    info.reduce_precision = reader.floating_type_or_fp32(kReducePrecision);
  }
  reader.require_nothing_else();
  return info;
}

// --- tensors -----------------------------------------------------------------------------------------------

std::string in_words(const std::string& name, const Dims& dims) {
  return printable(name) + " (" + to_string(dims) + ")";
}

template <class State, class Visit>
void for_each_tensor(State& state, const Visit& visit) {
  for (auto* values : {&state.parameters, &state.optimizer}) {
    for (auto& one : *values) {
      visit(one);
    }
  }
}

// Hashes the tensors in the order of describe_state(), not of the file: other programs may write them in
// another order.
std::string sha256_of(const TrainingState& state) {
  Sha256 digest;
  for_each_tensor(
      state, [&](const ParameterValues& values) { digest.update(std::as_bytes(std::span(values.values))); });
  return digest.hex_digest();
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& path)
    : path_(path), file_(path), info_(read_info(path, file_.metadata())) {}

void Checkpoint::require_network(const PlannedRun& run, const TrainingState& expected) const {
  const auto reject = [&](const std::string& difference) {
    throw InvalidArgument("'" + path_.string() + "' is a checkpoint of network '" + info_.model +
                          "', not of '" + run.tape->model() + "': " + difference);
  };
  const bool other_name = info_.model != run.tape->model();
  for (const ParameterValues& parameter : expected.parameters) {
    const SafetensorsTensor* found = file_.find(parameter.name);
    if (found != nullptr && found->dims != parameter.dims) {
      reject(printable(parameter.name) + " is " + to_string(found->dims) + " there and " +
             to_string(parameter.dims) + " here");
    }
    // If the networks have the same name, a missing tensor means that the file is incomplete. Reading the
    // state then reports that.
    if (found == nullptr && other_name) {
      reject("it has no " + in_words(parameter.name, parameter.dims));
    }
  }
  if (other_name) {
    reject("it has all parameters of the latter, but networks with the same parameters can differ");
  }
}

void Checkpoint::require_matches(const PlannedRun& run) const {
  require_network(run, describe_state(*run.tape));
  const TrainingOptions& training = run.options.training;
  const std::string here = optimizer_text(training.optimizer);
  const std::string there = optimizer_text(info_.optimizer);
  if (here != there) {
    throw InvalidArgument("'" + path_.string() + "' was trained with the optimizer " + there + ", not with " +
                          here);
  }
  if (training.clip_norm != info_.clip_norm) {
    throw InvalidArgument("'" + path_.string() + "' was trained with gradients clipped to a norm of " +
                          clip_text(info_.clip_norm) + ", not of " + clip_text(training.clip_norm) +
                          " (null: not clipped)");
  }
}

void Checkpoint::require_tensors(const TrainingState& expected) const {
  const auto reject = [&](const std::string& problem) {
    throw DataError("'" + path_.string() + "' is not a valid checkpoint: " + problem);
  };
  std::set<std::string> names;
  for_each_tensor(expected, [&](const ParameterValues& values) {
    names.insert(values.name);
    const SafetensorsTensor* found = file_.find(values.name);
    if (found == nullptr) {
      reject("the tensor " + in_words(values.name, values.dims) + " is missing");
    } else if (found->data_type != DataType::kF32 || found->dims != values.dims) {
      reject("the tensor " + printable(values.name) + ": expected F32 of " + to_string(values.dims) +
             ", found " + std::string(name_of(found->data_type)) + " of " + to_string(found->dims));
    }
  });
  for (const SafetensorsTensor& tensor : file_.tensors()) {
    if (!names.contains(tensor.name)) {
      reject("the tensor " + in_words(tensor.name, tensor.dims) + " is not expected");
    }
  }
}

TrainingState Checkpoint::state(const PlannedRun& run) const {
  TrainingState state = describe_state(*run.tape);
  require_matches(run);
  require_tensors(state);
  for_each_tensor(state, [&](ParameterValues& tensor) {
    tensor.values.resize(element_count(tensor.dims));
    file_.read(tensor.name, std::as_writable_bytes(std::span(tensor.values)));
  });
  if (const std::string found = sha256_of(state); found != info_.sha256) {
    throw DataError("'" + path_.string() + "' is damaged: expected data with the SHA-256 " +
                    printable(info_.sha256) + ", found " + found);
  }
  state.step = info_.step;
  state.seed = info_.seed;
  state.loss_scale = info_.loss_scale;
  return state;
}

namespace {

PlannedRun plan_with_algorithms_of(const Checkpoint& checkpoint, const Network& network, RunOptions options) {
  if (checkpoint.info().precision == options.training.precision) {
    options.recorded_algorithms = checkpoint.info().algorithms;
  }
  try {
    return plan_run(network, options);
  } catch (const InvalidArgument& error) {
    // If the checkpoint belongs to another network, require_matches() throws an error that names a parameter.
    // That is clearer than an error about an op without recorded algorithm. If the options are wrong, this
    // plan_run() throws their error again.
    options.recorded_algorithms.clear();
    options.policy = Policy::kOffloadNone;
    options.workspace_limit.reset();
    checkpoint.require_matches(plan_run(network, options));
    throw InvalidArgument("'" + checkpoint.path().string() + "' cannot be resumed here: " + error.what());
  }
}

}  // namespace

PlannedRun plan_resumed_run(const Checkpoint& checkpoint, const Network& network, const RunOptions& options) {
  PlannedRun run = plan_with_algorithms_of(checkpoint, network, options);
  checkpoint.require_matches(run);
  return run;
}

void save_checkpoint(const fs::path& path, Session& session, const SaveOptions& options) {
  const TrainingState state = session.state();
  if (!options.allow_nonfinite) {
    for_each_tensor(state, [&](const ParameterValues& tensor) {
      if (const auto found = find_nonfinite(tensor.values)) {
        throw Diverged("after step " + std::to_string(state.step) + " " + in_words(tensor.name, tensor.dims) +
                           " has values that are not finite (" + to_string(*found) + "): '" + path.string() +
                           "' is not written",
                       state.step);
      }
    });
  }
  std::vector<SafetensorsTensor> tensors;
  for_each_tensor(state, [&](const ParameterValues& values) {
    tensors.push_back({.name = values.name, .dims = values.dims});
  });
  SafetensorsWriter writer(path, std::move(tensors), metadata_of(session.run(), state, sha256_of(state)));
  for_each_tensor(
      state, [&](const ParameterValues& values) { writer.write(std::as_bytes(std::span(values.values))); });
  writer.commit();
}

void load_checkpoint(const fs::path& path, Session& session) {
  session.restore(Checkpoint(path).state(session.run()));
}

}  // namespace vdnn
