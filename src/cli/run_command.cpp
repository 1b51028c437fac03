#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/base/environment.h"
#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

struct ProgramArguments {
  std::optional<std::string> memory;
  std::optional<std::string> host_cache;
  std::optional<std::string> summary;
  bool ordered_free = false;
  bool ipc = false;
  bool no_peers = false;
  bool libraries = false;
  std::vector<std::string> command;
};

// A build folder has the library beside the command, an installation in its folder of libraries.
fs::path preload_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* const place : {"libvdnn_preload.so", VDNN_PRELOAD_INSTALLED}) {
    if (fs::exists(here / place)) {
      return fs::canonical(here / place);
    }
  }
  throw InvalidArgument("libvdnn_preload.so is missing; builds without the CUDA toolkit do not have it");
}

void set_environment(const char* name, const std::string& value) {
  if (setenv(name, value.c_str(), 1) != 0) {
    throw Error(std::string(name) + ": " + std::strerror(errno));
  }
}

void set_size(const char* name, const std::optional<std::string>& size) {
  if (size) {
    set_environment(name, std::to_string(parse_size(*size)));
  }
}

// Puts the library in front of libraries that are already preloaded.
void preload(const fs::path& library) {
  const std::optional<std::string> others = environment("LD_PRELOAD");
  set_environment("LD_PRELOAD", library.string() + (others ? ":" + *others : ""));
}

// Replaces this process by the program.
void run(const ProgramArguments& arguments) {
  preload(preload_library());
  set_size("VDNN_PRELOAD_MEMORY", arguments.memory);
  set_size("VDNN_PRELOAD_HOST_CACHE", arguments.host_cache);
  if (arguments.summary) {
    set_environment("VDNN_PRELOAD_SUMMARY", *arguments.summary);
  }
  if (arguments.ordered_free) {
    set_environment("VDNN_PRELOAD_FREE", "ordered");
  }
  if (arguments.ipc) {
    set_environment("VDNN_PRELOAD_IPC", "1");
  }
  if (arguments.no_peers) {
    set_environment("VDNN_PRELOAD_PEERS", "0");
  }
  if (arguments.libraries) {
    set_environment("VDNN_PRELOAD_LIBRARIES", "1");
  }
  std::vector<std::string> command = arguments.command;
  std::vector<char*> words(command.size() + 1, nullptr);
  std::ranges::transform(command, words.begin(), [](std::string& word) { return word.data(); });
  execvp(words.front(), words.data());
  throw InvalidArgument("cannot run " + command.front() + ": " + std::strerror(errno));
}

}  // namespace

Command add_run_command(CLI::App& app) {
  const auto arguments = std::make_shared<ProgramArguments>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a CUDA program whose memory comes from a stream pool: vdnn run [options] -- PROGRAM ...");
  add_option(*command, "memory", arguments->memory,
             "budget of each GPU's pool (default: all of the GPU's memory)");
  add_option(*command, "host-cache", arguments->host_cache,
             "page-locked memory to keep for reuse (default: 256MiB)");
  add_option(*command, "summary", arguments->summary,
             "write a summary at the end to this file; 1: to standard error");
  command->add_flag("--ordered-free", arguments->ordered_free,
                    "cudaFree does not synchronise; only for programs that use cudaMalloc's memory on the "
                    "legacy default stream alone, or synchronise themselves");
  command->add_flag("--ipc", arguments->ipc,
                    "cudaMalloc bypasses the pool, so that other processes can share its memory");
  command->add_flag("--no-peers", arguments->no_peers,
                    "other GPUs get no access to a pool's memory (default: all that can reach it do)");
  command->add_flag("--libraries", arguments->libraries,
                    "also serve the program's libraries that contain a CUDA runtime of their own");
  command->add_option("program", arguments->command, "the program and its arguments")->required();
  return [arguments] { run(*arguments); };
}

}  // namespace vdnn
