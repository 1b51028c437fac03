#include "src/cli/options.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>

#include "src/report/output_path.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

Dims parse_dims(const std::string& text) {
  Dims dims;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    std::int64_t dim = 0;
    const auto parsed = std::from_chars(at, end, dim);
    if (parsed.ec != std::errc() || dim <= 0 || (parsed.ptr != end && *parsed.ptr != 'x') ||
        parsed.ptr + 1 == end) {
      throw InvalidArgument("--input '" + text + "': write CxHxW or CxDxHxW, each at least 1");
    }
    dims.push_back(dim);
    at = parsed.ptr + 1;
  }
  return dims;
}

// The value of `text` among names and values; `later` are names that a later version will have.
template <class T>
T choose(const char* option, const std::string& text,
         std::initializer_list<std::pair<const char*, T>> choices,
         std::initializer_list<const char*> later = {}) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) {
      return value;
    }
    names += names.empty() ? name : std::string(", ") + name;
  }
  for (const char* name : later) {
    if (text == name) {
      throw InvalidArgument(std::string(option) + " " + text + ": this version does not have it; use " +
                            names);
    }
  }
  throw InvalidArgument(std::string(option) + " '" + text + "' is unknown; use " + names);
}

std::optional<Policy> parse_policy(const std::string& text) {
  return choose<std::optional<Policy>>("--policy", text,
                                       {{"auto", std::nullopt},
                                        {"baseline", Policy::kBaseline},
                                        {"none", Policy::kOffloadNone},
                                        {"all", Policy::kOffloadAll},
                                        {"conv", Policy::kOffloadConv}},
                                       {"dyn", "optimal"});
}

AlgorithmPreference parse_preference(const std::string& text) {
  return choose<AlgorithmPreference>(
      "--algorithms", text,
      {{"memory", AlgorithmPreference::kMemory}, {"performance", AlgorithmPreference::kPerformance}});
}

}  // namespace

CLI::Option* add_text(CLI::App& app, const std::string& name, std::string& value, const std::string& help) {
  return app.add_option(name, value, help)->check([](const std::string& text) {
    return text.empty() ? std::string("must not be empty") : std::string();
  });
}

void add_run_options(CLI::App& app, RunArguments& arguments) {
  add_text(app, "--model", arguments.model, "network of the zoo: lenet, fashion-vgg")->required();
  add_text(app, "--input", arguments.input, "CxHxW or CxDxHxW (default: the model's own)");
  app.add_option("--classes", arguments.classes, "classes (default: the model's own)");
  app.add_option("--batch", arguments.batch, "images a step")->capture_default_str();
  add_text(app, "--device", arguments.device, "auto, cpu or sim:NAME")->capture_default_str();
  add_text(app, "--memory", arguments.memory, "device budget, such as 512MiB (default: the device's memory)");
  add_text(app, "--host-memory", arguments.host_memory, "budget for page-locked memory");
  app.add_option("--threads", arguments.threads, "compute threads of cpu (default: all cores)");
  add_text(app, "--policy", arguments.policy, "auto, baseline, none, all or conv")->capture_default_str();
  add_text(app, "--algorithms", arguments.algorithms, "memory or performance")->capture_default_str();
  add_text(app, "--workspace-limit", arguments.workspace_limit, "most workspace of any op");
  add_text(app, "--optimizer", arguments.optimizer, "sgd")->capture_default_str();
  app.add_option("--momentum", arguments.momentum)->capture_default_str();
  app.add_option("--weight-decay", arguments.weight_decay)->capture_default_str();
  app.add_option("--seed", arguments.seed, "of initial weights and shuffling")->capture_default_str();
}

std::optional<std::uint64_t> parse_optional_size(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(parse_size(text));
}

RunOptions to_run_options(const RunArguments& arguments) {
  choose<int>("--optimizer", arguments.optimizer, {{"sgd", 0}}, {"adam", "adamw"});
  if (arguments.classes.value_or(1) < 1) {
    throw InvalidArgument("--classes " + std::to_string(*arguments.classes) + ": must be at least 1");
  }
  if (arguments.threads.value_or(1) < 1) {
    throw InvalidArgument("--threads " + std::to_string(*arguments.threads) + ": must be at least 1");
  }
  require_finite("--momentum", arguments.momentum);
  require_finite("--weight-decay", arguments.weight_decay);
  return {.model = {.model = arguments.model,
                    .input = parse_dims(arguments.input),
                    .classes = arguments.classes.value_or(0),
                    .batch = arguments.batch},
          .device = arguments.device,
          .memory_bytes = parse_optional_size(arguments.memory),
          .host_memory_bytes = parse_optional_size(arguments.host_memory),
          .threads = arguments.threads.value_or(0),
          .policy = parse_policy(arguments.policy),
          .algorithms = parse_preference(arguments.algorithms),
          .workspace_limit = parse_optional_size(arguments.workspace_limit),
          .training = {
              .optimizer = SgdSpec{.momentum = arguments.momentum, .weight_decay = arguments.weight_decay}}};
}

void require_finite(const char* option, float value) {
  if (!std::isfinite(value) || value < 0) {
    throw InvalidArgument(std::string(option) + " " + std::to_string(value) + ": must be a number from 0 up");
  }
}

void check_outputs(const OutputArguments& outputs) {
  std::set<std::filesystem::path> files;
  for (const std::string& path : {outputs.json, outputs.trace, outputs.schedule}) {
    if (path.empty()) {
      continue;
    }
    check_output_path(path);
    if (!files.insert(std::filesystem::absolute(path).lexically_normal()).second) {
      throw InvalidArgument("two outputs are to be written to " + path);
    }
  }
}

nlohmann::ordered_json to_origin(const PlannedRun& run, std::uint64_t seed) {
  const RunOptions& options = run.options;
  nlohmann::ordered_json origin{{"model", options.model.model},
                                {"input", options.model.input},
                                {"classes", options.model.classes},
                                {"batch", options.model.batch},
                                {"device", run.target.name},
                                {"memory_bytes", run.target.budget_bytes},
                                {"host_memory_bytes", run.target.host_budget_bytes},
                                {"threads", run.target.threads},
                                {"policy", to_string(run.plan.options.policy)},
                                {"algorithms", to_string(options.algorithms)},
                                {"momentum", std::get<SgdSpec>(options.training.optimizer).momentum},
                                {"weight_decay", std::get<SgdSpec>(options.training.optimizer).weight_decay},
                                {"seed", seed}};
  if (options.workspace_limit) {
    origin["workspace_limit"] = *options.workspace_limit;
  }
  return origin;
}

Origin from_origin(const std::string& text) {
  try {
    const auto origin = nlohmann::json::parse(text);
    RunOptions options{
        .model = {.model = origin.at("model"),
                  .input = origin.at("input").get<Dims>(),
                  .classes = origin.at("classes"),
                  .batch = origin.at("batch")},
        .device = origin.at("device"),
        .memory_bytes = origin.at("memory_bytes").get<std::uint64_t>(),
        .threads = origin.at("threads"),
        .policy = parse_policy(origin.at("policy")),
        .algorithms = parse_preference(origin.at("algorithms")),
        .training = {
            .optimizer = SgdSpec{.momentum = origin.at("momentum"), .weight_decay = origin.at("weight_decay")}}};
    if (origin.contains("workspace_limit")) {
      options.workspace_limit = origin.at("workspace_limit").get<std::uint64_t>();
    }
    return {.options = std::move(options), .seed = origin.at("seed").get<std::uint64_t>()};
  } catch (const nlohmann::json::exception& error) {
    throw DataError(std::string("schedule file: its origin is not a run of this command: ") + error.what());
  }
}

}  // namespace vdnn
