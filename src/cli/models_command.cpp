#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "src/cli/output.h"
#include "src/cli/table.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/size.h"
#include "vdnn/zoo.h"

namespace vdnn {

namespace {

// Counts learned parameters, without running statistics.
std::uint64_t learned_bytes(const Tape& tape) {
  std::uint64_t bytes = 0;
  for (const TapeParameter& parameter : tape.parameters()) {
    bytes += parameter.recipe.trainable ? parameter.recipe.type.bytes() : 0;
  }
  return bytes;
}

nlohmann::ordered_json describe(const std::string& name) {
  constexpr std::int64_t kBatch = 2;  // since batch normalisation may need more than one sample
  const Network network = make_model({.model = name, .input = {}, .batch = kBatch});
  const std::unique_ptr<OpCatalog> catalog = make_classic_catalog();
  const std::shared_ptr<const Tape> tape = lower_to_tape(network, *catalog, {});
  const Dims& images = network.type(network.input()).dims;
  const std::uint64_t bytes = learned_bytes(*tape);
  return {{"type", "model"},
          {"model", name},
          {"input", to_string(Dims(images.begin() + 1, images.end()))},
          {"classes", network.classes()},
          {"parameters", bytes / sizeof(float)},
          {"parameter_bytes", bytes},
          {"feature_map_bytes_per_sample", tape->feature_map_bytes() / kBatch}};
}

void print(std::ostream& out, const std::vector<nlohmann::ordered_json>& models) {
  Table table;
  table.add({"model", "classes", "parameters", "bytes", "feature maps per sample", "input"});
  for (const nlohmann::ordered_json& model : models) {
    table.add({model.at("model"), model.at("classes").dump(), model.at("parameters").dump(),
               format_rounded_size(model.at("parameter_bytes")),
               format_rounded_size(model.at("feature_map_bytes_per_sample")), model.at("input")});
  }
  table.print(out);
}

void list_models(const OutputArguments& outputs) {
  check_outputs(outputs);
  std::vector<nlohmann::ordered_json> models;
  for (const std::string& name : model_names()) {
    models.push_back(describe(name));
  }
  print(people(outputs), models);
  write_json(outputs.json, models);
}

}  // namespace

Command add_models_command(CLI::App& app) {
  const auto outputs = std::make_shared<OutputArguments>();
  CLI::App* command = app.add_subcommand("models", "List the networks of the zoo and their sizes");
  add_option(*command, "json", outputs->json, "write JSON lines: each model");
  return [outputs] { list_models(*outputs); };
}

}  // namespace vdnn
