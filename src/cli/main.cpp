#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <thread>

#include "src/cli/argument_notes.h"
#include "src/cli/commands.h"
#include "src/cli/exit_status.h"
#include "src/cli/option_types.h"
#include "src/cli/output.h"
#include "src/cli/version.h"
#include "vdnn/process_group.h"

namespace vdnn {

std::ostream& people(const OutputArguments& outputs) {
  for (const std::string& path : outputs.all()) {
    if (path == "/dev/stdout") {
      return std::cerr;
    }
  }
  return std::cout;
}

namespace {

int run(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("vdnn"));
  spdlog::set_pattern("%n: %^%l%$: %v");
  CLI::App app("Trains convolutional networks whose feature maps do not fit in device memory.", "vdnn");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", version_text, "print versions of vdnn and of its libraries");
  const std::map<CLI::App*, Command> commands = [&app] {
    std::map<CLI::App*, Command> result;
    for (const auto add :
         {add_train_command, add_plan_command, add_max_batch_command, add_profile_command, add_replay_command,
          add_reproduce_command, add_run_command, add_sweep_command, add_explain_command, add_devices_command,
          add_models_command, add_completion_command, add_manual_command}) {
      const Command command = add(app);
      result.emplace(app.get_subcommands({}).back(), command);
    }
    return result;
  }();
  set_option_types(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    std::cerr << unknown_argument_hints(app);
    return status == 0 ? 0 : kExitUsage;
  }
  if (app.get_subcommands().empty()) {
    std::cerr << app.help();
    return kExitUsage;
  }
  if (!launched_by_mpi()) {  // otherwise every rank would print it
    for (const std::string& note :
         argument_notes(*app.get_subcommands().front(), std::thread::hardware_concurrency())) {
      log_warning(note);
    }
  }
  return exit_status_of([&] {
    commands.at(app.get_subcommands().front())();
    if (!std::cout.flush()) {
      throw OutputError("cannot write to standard output");
    }
  });
}

}  // namespace
}  // namespace vdnn

int main(int argc, char** argv) {
  try {
    return vdnn::run(argc, argv);
  } catch (...) {
    // Reached only before a command runs: out of memory, or a mistake in the declarations of options.
    std::fputs("vdnn: failed to start\n", stderr);
    return 1;
  }
}
