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
  std::optional<std::int64_t> classes;
  std::int64_t batch = 64;
  std::string device = "auto";
  std::string memory;
  std::string host_memory;
  std::optional<int> threads;
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

// An option with a text that must not be empty: an empty one is a shell variable that was not set.
CLI::Option* add_text(CLI::App& app, const std::string& name, std::string& value, const std::string& help);

// Throws InvalidArgument that names the option and what it may be.
RunOptions to_run_options(const RunArguments& arguments);

// Throws InvalidArgument for what is not a number from 0 up.
void require_finite(const char* option, float value);

std::optional<std::uint64_t> parse_optional_size(const std::string& text);

// Throws InvalidArgument for what cannot be written, and for two outputs in one file, before anything else is
// done.
void check_outputs(const OutputArguments& outputs);

// Run options inside a schedule file: what `replay` makes the tape from again.
nlohmann::ordered_json to_origin(const PlannedRun& run, std::uint64_t seed);
struct Origin {
  RunOptions options;
  std::uint64_t seed = 1;
};
// Throws DataError for what is not such an object.
Origin from_origin(const std::string& text);

}  // namespace vdnn
