#include "src/cli/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "src/cli/launcher_process.h"
#include "src/dist/rank_device.h"
#include "vdnn/error.h"
#include "vdnn/gpu_system.h"

namespace vdnn {

namespace {

// The command line with which this process was started.
std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < all.size(); begin = all.find('\0', begin) + 1) {
    words.emplace_back(all.c_str() + begin);
  }
  // Word 0 may be a bare name that a shell found in PATH.
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

// Options for mpirun: no binding, since each rank has its own threads; more ranks than cores are allowed; the
// root user is allowed, since processes in containers usually run as root.
std::vector<std::string> mpirun_command(std::uint32_t devices) {
  std::vector<std::string> words{"mpirun",    "-np",  std::to_string(devices),
                                 "--bind-to", "none", "--oversubscribe"};
  if (geteuid() == 0) {
    words.emplace_back("--allow-run-as-root");
  }
  std::ranges::move(own_command_line(), std::back_inserter(words));
  return words;
}

std::uint32_t machines_of(ProcessGroup& processes) {
  const std::string mine = std::to_string(processes.local_size());
  for (const std::string& other : processes.gather_to_all(mine, "devices of each machine")) {
    if (other != mine) {
      throw InvalidArgument(
          std::string("one machine has ").append(mine).append(" ranks and another ").append(other) +
          ": start the same number on each");
    }
  }
  return static_cast<std::uint32_t>(processes.size() / processes.local_size());
}

void require_as_asked(const char* option, const std::optional<std::uint32_t>& asked, std::uint32_t started) {
  if (asked && *asked != started) {
    throw InvalidArgument(std::string(option) + " " + std::to_string(*asked) +
                          ", and the launcher has started " + std::to_string(started));
  }
}

// Null if no GPU can be driven.
std::shared_ptr<GpuSystem> gpus() {
  try {
    return make_gpu_system();
  } catch (const Error&) {
    return nullptr;
  }
}

// "cuda" of "cuda:3".
std::string kind_of(const RunTarget& target) {
  return target.name.substr(0, target.name.find(':'));
}

// Removes options that may differ between ranks.
nlohmann::ordered_json compared(nlohmann::ordered_json options, const RunTarget& target) {
  options["device"] = kind_of(target);
  return options;
}

}  // namespace

void start_ranks(const RunArguments& arguments) {
  const std::uint32_t devices = arguments.devices.value_or(1);
  if (launched_by_mpi()) {
    return;
  }
  if (arguments.machines.value_or(1) > 1) {
    throw InvalidArgument("--machines " + std::to_string(*arguments.machines) +
                          ": start the ranks of several machines with mpirun or srun");
  }
  if (devices > 1) {
    std::exit(run_launcher(mpirun_command(devices)));
  }
}

void require_alone(const RunArguments& arguments) {
  require_as_asked("--devices", arguments.devices, 1);
  require_as_asked("--machines", arguments.machines, 1);
}

RunArguments arguments_of_rank(const RunArguments& given, ProcessGroup& processes) {
  RunArguments arguments = given;
  const std::uint32_t machines = machines_of(processes);
  const auto devices = static_cast<std::uint32_t>(processes.local_size());
  require_as_asked("--devices", given.devices, devices);
  require_as_asked("--machines", given.machines, machines);
  arguments.devices = devices;
  arguments.machines = machines;
  arguments.device = device_of_rank(given.device, processes, gpus().get());
  return arguments;
}

bool all_on_gpus(const std::string& device, ProcessGroup& processes) {
  const std::vector<std::string> devices = processes.gather_to_all(device, "the device of each rank");
  return std::ranges::all_of(devices, [](const std::string& each) { return each.starts_with("cuda:"); });
}

void require_agreement(const nlohmann::ordered_json& options, const RunTarget& target,
                       ProcessGroup& processes) {
  const std::vector<std::string> all =
      processes.gather_to_all(compared(options, target).dump(), "the options of each rank");
  const auto first = nlohmann::ordered_json::parse(all.front());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = nlohmann::ordered_json::parse(all[rank]);
    for (const auto& [key, value] : first.items()) {
      if (!other.contains(key) || other[key] != value) {
        throw InvalidArgument("rank " + std::to_string(rank) + " has " + key + " " +
                              (other.contains(key) ? other[key].dump() : "not at all") + ", rank 0 has " +
                              value.dump() + ": all ranks need the same options");
      }
    }
  }
}

bool launcher_has_terminal(int descriptor) {
  std::error_code none;
  const std::string output = std::filesystem::read_symlink(
      "/proc/" + std::to_string(getppid()) + "/fd/" + std::to_string(descriptor), none);
  return output.starts_with("/dev/pts/") || output.starts_with("/dev/tty");
}

}  // namespace vdnn
