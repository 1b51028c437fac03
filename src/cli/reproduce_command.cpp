#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "src/cli/output.h"
#include "src/report/vdnn2016.h"

namespace vdnn {

namespace {

struct ReproduceArguments {
  std::string publication;
  OutputArguments outputs;
};

void reproduce(const ReproduceArguments& arguments) {
  check_outputs(arguments.outputs);
  const Vdnn2016 reproduction = reproduce_vdnn2016();
  print(people(arguments.outputs), reproduction);
  write_json(arguments.outputs.json, to_json(reproduction));
}

}  // namespace

Command add_reproduce_command(CLI::App& app) {
  const auto arguments = std::make_shared<ReproduceArguments>();
  CLI::App* command = app.add_subcommand(
      "reproduce", "Recompute a publication's tables in simulation, beside its published figures");
  command->add_option("publication", arguments->publication, "vdnn2016: Rhu et al., MICRO 2016")
      ->required()
      ->check(CLI::IsMember({"vdnn2016"}));
  add_option(*command, "json", arguments->outputs.json, "write JSON lines");
  return [arguments] { reproduce(*arguments); };
}

}  // namespace vdnn
