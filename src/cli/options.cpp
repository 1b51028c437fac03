#include "src/cli/options.h"

#include <charconv>
#include <initializer_list>

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

void add_run_options(CLI::App& app, RunArguments& arguments) {
  app.add_option("--model", arguments.model, "network of the zoo: lenet, fashion-vgg")->required();
  app.add_option("--input", arguments.input, "CxHxW or CxDxHxW (default: the model's own)");
  app.add_option("--classes", arguments.classes, "classes (default: the model's own)");
  app.add_option("--batch", arguments.batch, "images a step")->capture_default_str();
  app.add_option("--device", arguments.device, "auto, cpu or sim:NAME")->capture_default_str();
  app.add_option("--memory", arguments.memory,
                 "device budget, such as 512MiB (default: the device's memory)");
  app.add_option("--host-memory", arguments.host_memory, "budget for page-locked memory");
  app.add_option("--threads", arguments.threads, "compute threads of cpu (default: all cores)");
  app.add_option("--policy", arguments.policy, "auto, baseline, none, all or conv")->capture_default_str();
  app.add_option("--algorithms", arguments.algorithms, "memory or performance")->capture_default_str();
  app.add_option("--workspace-limit", arguments.workspace_limit, "most workspace of any op");
  app.add_option("--optimizer", arguments.optimizer, "sgd")->capture_default_str();
  app.add_option("--momentum", arguments.momentum)->capture_default_str();
  app.add_option("--weight-decay", arguments.weight_decay)->capture_default_str();
  app.add_option("--seed", arguments.seed, "of initial weights and shuffling")->capture_default_str();
}

std::optional<std::uint64_t> parse_optional_size(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(parse_size(text));
}

RunOptions to_run_options(const RunArguments& arguments) {
  choose<int>("--optimizer", arguments.optimizer, {{"sgd", 0}}, {"adam", "adamw"});
  if (arguments.classes < 0) {
    throw InvalidArgument("--classes " + std::to_string(arguments.classes) + ": must be at least 1");
  }
  return {.model = {.model = arguments.model,
                    .input = parse_dims(arguments.input),
                    .classes = arguments.classes,
                    .batch = arguments.batch},
          .device = arguments.device,
          .memory_bytes = parse_optional_size(arguments.memory),
          .host_memory_bytes = parse_optional_size(arguments.host_memory),
          .threads = arguments.threads,
          .policy = parse_policy(arguments.policy),
          .algorithms = parse_preference(arguments.algorithms),
          .workspace_limit = parse_optional_size(arguments.workspace_limit),
          .optimizer = {.momentum = arguments.momentum, .weight_decay = arguments.weight_decay}};
}

void check_outputs(const OutputArguments& outputs) {
  for (const std::string& path : {outputs.json, outputs.trace, outputs.schedule}) {
    if (!path.empty()) {
      check_output_path(path);
    }
  }
}

nlohmann::ordered_json to_origin(const PlannedRun& run) {
  const RunOptions& options = run.options;
  nlohmann::ordered_json origin{{"model", options.model.model},
                                {"input", options.model.input},
                                {"classes", options.model.classes},
                                {"batch", options.model.batch},
                                {"device", run.target.name},
                                {"memory_bytes", run.target.budget_bytes},
                                {"threads", run.target.threads},
                                {"policy", to_string(run.plan.options.policy)},
                                {"algorithms", to_string(options.algorithms)},
                                {"momentum", options.optimizer.momentum},
                                {"weight_decay", options.optimizer.weight_decay}};
  if (options.workspace_limit) {
    origin["workspace_limit"] = *options.workspace_limit;
  }
  return origin;
}

RunOptions from_origin(const std::string& text) {
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
        .optimizer = {.momentum = origin.at("momentum"), .weight_decay = origin.at("weight_decay")}};
    if (origin.contains("workspace_limit")) {
      options.workspace_limit = origin.at("workspace_limit").get<std::uint64_t>();
    }
    return options;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(std::string("schedule file: its origin is not a run of this command: ") + error.what());
  }
}

}  // namespace vdnn
