#include "src/dist/rank_device.h"

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "vdnn/option_error.h"

namespace vdnn {

namespace {

int count_of(GpuSystem* gpus) {
  try {
    return gpus == nullptr ? 0 : gpus->count();
  } catch (const Error&) {
    return 0;  // this build cannot drive GPUs
  }
}

// The ordinal of this rank's GPU, among the GPUs that are visible to the process. Returns nothing if the rank
// uses another device.
std::optional<int> gpu_of_rank(const std::string& asked, const ProcessGroup& processes, GpuSystem* gpus) {
  if (asked != "auto" && asked != "cuda") {
    return std::nullopt;
  }
  const int there = count_of(gpus);
  if (there == 1) {
    return 0;
  }
  if (there == 0 && asked == "auto") {
    return std::nullopt;
  }
  if (there < processes.local_size()) {
    throw InvalidArgument("a machine has " + std::to_string(processes.local_size()) + " ranks and " +
                          std::to_string(there) + " GPUs: each rank needs its own");
  }
  return processes.local_rank();
}

// `mine` names this rank's GPU; it is empty on a rank without GPU. Compares all ranks, also of different
// machines, since GPUs of two machines never have the same name.
void require_gpus_of_their_own(const std::string& mine, ProcessGroup& processes) {
  const std::vector<std::string> gpus = processes.gather_to_all(mine, "the GPU of each rank");
  std::map<std::string, std::size_t> users;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [user, only] = users.emplace(gpus[rank], rank);
    if (!only && !gpus[rank].empty()) {
      throw InvalidArgument("ranks " + std::to_string(user->second) + " and " + std::to_string(rank) +
                            " have the same GPU, " + gpus[rank] + ": each rank needs its own");
    }
  }
}

}  // namespace

std::string device_of_rank(const std::string& asked, ProcessGroup& processes, GpuSystem* gpus) {
  if (asked.starts_with("cuda:") && processes.local_size() > 1) {
    throw InvalidOption({{.option = "device", .value = asked}},
                        "a machine's " + std::to_string(processes.local_size()) +
                            " ranks cannot share it: write cpu, cuda or auto");
  }
  const std::optional<int> gpu = gpu_of_rank(asked, processes, gpus);
  require_gpus_of_their_own(gpu ? gpus->gpu_uuid(*gpu) : "", processes);
  if (gpu) {
    return "cuda:" + std::to_string(*gpu);
  }
  return asked == "auto" ? "cpu" : asked;
}

}  // namespace vdnn
