#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/device_list.h"
#include "src/cli/option_fields.h"
#include "src/cli/output.h"

namespace vdnn {

namespace {

// Null, with the reason in `why`, if no GPU can be driven.
std::shared_ptr<GpuSystem> find_gpus(std::string& why) {
  try {
    std::shared_ptr<GpuSystem> gpus = make_gpu_system();
    gpus->count();
    return gpus;
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

void list_devices(const OutputArguments& outputs) {
  check_outputs(outputs);
  std::string why;
  const std::shared_ptr<GpuSystem> gpus = find_gpus(why);
  std::ostream& out = people(outputs);
  std::vector<nlohmann::ordered_json> devices =
      present_devices(gpus.get(), [&out](const std::string& text) { out << text << "\n"; });
  std::ranges::move(simulated_devices(), std::back_inserter(devices));
  if (!gpus) {
    out << "no GPU: " << why << "\n";
  }
  print_devices(out, devices);
  write_json(outputs.json, devices);
}

}  // namespace

Command add_devices_command(CLI::App& app) {
  const auto outputs = std::make_shared<OutputArguments>();
  CLI::App* command =
      app.add_subcommand("devices", "List the devices of this machine and those that can be simulated");
  add_option(*command, "json", outputs->json, "write JSON lines: each device");
  return [outputs] { list_devices(*outputs); };
}

}  // namespace vdnn
