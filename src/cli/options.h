#pragma once
// The options of the commands, and what they become.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "vdnn/planned_run.h"

namespace vdnn {

// Options as typed: those that change the tape, the algorithms or the budgets. Shared by `train` and `plan`.
struct RunArguments {
  std::string model;
  std::string input;
  std::int64_t classes = 0;
  std::int64_t batch = 64;
  std::string device = "auto";
  std::string memory;
  std::string host_memory;
  int threads = 0;
  std::string policy = "auto";
  std::string algorithms = "performance";
  std::string workspace_limit;
  std::string optimizer = "sgd";
  float momentum = 0.9F;
  float weight_decay = 0;
  std::uint64_t seed = 1;
};

// Where a command writes; empty: nowhere.
struct OutputArguments {
  std::string json;
  std::string trace;
  std::string schedule;
};

void add_run_options(CLI::App& app, RunArguments& arguments);

// Throws InvalidArgument that names the option and what it may be.
RunOptions to_run_options(const RunArguments& arguments);

std::optional<std::uint64_t> parse_optional_size(const std::string& text);

// Throws InvalidArgument for what cannot be written, before anything else is done.
void check_outputs(const OutputArguments& outputs);

// Run options inside a schedule file: what `replay` makes the tape from again.
nlohmann::ordered_json to_origin(const PlannedRun& run);
// Throws DataError for what is not such an object.
RunOptions from_origin(const std::string& origin);

}  // namespace vdnn
