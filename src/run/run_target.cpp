#include "src/run/run_target.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <thread>

#include "src/base/near_names.h"
#include "streams/host_memory.h"
#include "vdnn/option_error.h"
#include "vdnn/process_group.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr std::string_view kSimPrefix = "sim:";
constexpr std::string_view kGpuPrefix = "cuda:";

// With more threads, OpenMP's runtime would end the process instead of reporting an error.
constexpr int kMostThreads = 1024;
// `cpu` reserves at most this many bytes. The address space has 47 bits, and everything else in the process
// needs a part of it.
constexpr std::uint64_t kMostReserved = std::uint64_t{1} << 46;

// How many threads each device of a machine uses.
int compute_threads(int asked, std::uint32_t devices) {
  if (asked < 0 || asked > kMostThreads) {
    throw InvalidOption({{.option = "threads", .value = std::to_string(asked)}},
                        "must be 1 to " + std::to_string(kMostThreads));
  }
  return asked > 0 ? asked : static_cast<int>(std::max(1U, std::thread::hardware_concurrency() / devices));
}

void require_positive(const std::optional<std::uint64_t>& bytes, const char* option) {
  if (bytes && *bytes == 0) {
    throw InvalidOption({{.option = option, .value = "0"}}, "a budget must be larger than 0");
  }
}

std::uint32_t devices_of_machine(const RunOptions& options) {
  const std::uint32_t ranks = options.training.ranks;
  if (options.machines < 1 || ranks < 1 || ranks % options.machines != 0) {
    throw InvalidArgument(std::to_string(ranks) + " ranks on " + std::to_string(options.machines) +
                          " machines: each machine must have the same number, at least one");
  }
  return ranks / options.machines;
}

// Sets the budgets. The devices of a machine share default budgets evenly.
void set_budgets(RunTarget& target, const RunOptions& options, std::uint64_t default_memory_bytes,
                 std::uint64_t host_memory_bytes) {
  target.budget_bytes = options.memory_bytes.value_or(default_memory_bytes);
  target.host_budget_bytes =
      options.host_memory_bytes.value_or(host_memory_bytes / 2 / devices_of_machine(options));
}

bool is_file(std::string_view profile) {
  return profile.ends_with(".json");
}

// `name` is the name of a known profile or a file's path.
SimProfile profile_of(const std::string& name) {
  if (!is_file(name)) {
    return sim_profile(name);
  }
  std::ifstream file(name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw InvalidArgument("device profile " + name + ": cannot be read");
  }
  try {
    return parse_sim_profile(text);
  } catch (const DataError& error) {
    throw InvalidArgument(name + ": " + error.what());
  }
}

void resolve_sim(RunTarget& target, const RunOptions& options) {
  target.simulated = true;
  target.profile = profile_of(target.name.substr(kSimPrefix.size()));
  target.name = std::string(kSimPrefix) + target.profile.name;
  set_budgets(target, options, target.profile.memory_bytes, target.profile.host_memory_bytes);
}

void resolve_cpu(RunTarget& target, const RunOptions& options) {
  if (options.memory_bytes.value_or(0) > kMostReserved) {
    throw InvalidOption({{.option = "memory_bytes", .value = std::to_string(*options.memory_bytes)}},
                        "cpu can reserve at most " + format_size(kMostReserved));
  }
  target.profile = sim_profile("cpu");
  target.communicator_bytes = options.training.ranks > 1 ? MpiOptions{}.staging_bytes : 0;
  target.library_bytes = target.communicator_bytes;
  set_budgets(target, options, host_memory_bytes() / 2 / devices_of_machine(options), host_memory_bytes());
}

// Letters and digits in lower case: "NVIDIA GeForce RTX 4090" becomes "nvidiageforcertx4090", which contains
// the profile's name rtx4090.
std::string letters_and_digits(std::string_view text) {
  std::string kept;
  for (const unsigned char c : text) {
    if (std::isalnum(c) != 0) {
      kept += static_cast<char>(std::tolower(c));
    }
  }
  return kept;
}

// The profile for predictions of this GPU. It has the GPU's own rates if they are known, otherwise another
// GPU's. Its properties of memory are always the GPU's own.
SimProfile profile_of_gpu(const std::string& gpu, const DeviceProperties& properties) {
  const GpuRates rates = rates_of_gpu(gpu);
  SimProfile profile = sim_profile(rates.profile);
  std::string source =
      rates.known ? profile.source
                  : "no figures of " + gpu + ", so those of " + rates.profile + " (" + profile.source + ")";
  profile.name = properties.name;
  profile.memory_bytes = properties.memory_bytes;
  profile.host_memory_bytes = host_memory_bytes();
  profile.granule_bytes = properties.granule_bytes;
  profile.alignment_bytes = properties.alignment_bytes;
  profile.source = std::move(source);
  return profile;
}

void resolve_gpu(RunTarget& target, const RunOptions& options, int ordinal) {
  if (options.page_aligned_blocks) {
    throw InvalidArgument("device '" + target.name + "': page-aligned blocks are a debugging aid of cpu");
  }
  target.gpu = ordinal;
  // Creates a temporary device, which measures the free memory and refuses impossible budgets.
  const std::unique_ptr<Device> device =
      target.gpus->make_device({.ordinal = ordinal,
                                .budget_bytes = options.memory_bytes.value_or(0),
                                .reserve_bytes = options.gpu_reserve_bytes});
  const DeviceProperties properties = device->properties();
  if (options.training.ranks > 1 && options.communicator_bytes) {
    target.communicator_bytes = options.communicator_bytes(*device, ordinal);
  }
  target.profile = profile_of_gpu(target.gpus->gpu_name(ordinal), properties);
  target.library_bytes = properties.library_bytes + target.communicator_bytes;
  target.reserve_bytes = properties.reserve_bytes;
  set_budgets(target, options, properties.budget_bytes + properties.library_bytes, host_memory_bytes());
}

std::shared_ptr<GpuSystem> gpus_of(const RunOptions& options) {
  return options.gpus ? options.gpus : make_gpu_system();
}

// Chooses a GPU if one can be driven within the budget, otherwise `cpu`. It is no error if the machine has no
// GPU or if the budget is less than a GPU's libraries need.
void resolve_auto(RunTarget& target, const RunOptions& options) {
  try {
    target.gpus = gpus_of(options);
    const int ordinal = roomiest_gpu(*target.gpus);
    target.name = std::string(kGpuPrefix) + std::to_string(ordinal);
    target.why = target.gpus->gpu_name(ordinal) + ", of " + std::to_string(target.gpus->count()) +
                 " GPUs the one with the most free memory";
    resolve_gpu(target, options, ordinal);
    if (target.reserve_bytes != 0) {
      target.why +=
          "; " + format_size(target.reserve_bytes) + " of that is kept back for CUDA's later allocations";
    }
  } catch (const Error& error) {
    target = {.name = "cpu", .why = error.what(), .threads = target.threads};
    resolve_cpu(target, options);
  }
}

// Names of devices, to be suggested for an unknown name.
std::vector<std::string> device_names() {
  std::vector<std::string> names{"auto", "cpu", "cuda:0"};
  for (const std::string& name : sim_profile_names()) {
    names.push_back(std::string(kSimPrefix) + name);
  }
  return names;
}

int parse_ordinal(const std::string& device) {
  int ordinal = 0;
  const char* const end = device.data() + device.size();
  const auto parsed = std::from_chars(device.data() + kGpuPrefix.size(), end, ordinal);
  if (parsed.ec != std::errc() || parsed.ptr != end || ordinal < 0) {
    throw InvalidArgument("device '" + device + "': write cuda:N, N from 0");
  }
  return ordinal;
}

}  // namespace

GpuRates rates_of_gpu(const std::string& gpu) {
  GpuRates rates{.profile = "a100", .known = false};
  for (const std::string& name : sim_profile_names()) {
    if (name != "cpu" && letters_and_digits(gpu).find(letters_and_digits(name)) != std::string::npos) {
      rates = {.profile = name, .known = true};
    }
  }
  return rates;
}

std::optional<std::string> device_file(const std::string& device) {
  if (!device.starts_with(kSimPrefix) || !is_file(device)) {
    return std::nullopt;
  }
  return device.substr(kSimPrefix.size());
}

std::string file_device(const std::string& file) {
  return std::string(kSimPrefix) + file;
}

RunTarget resolve_target(const RunOptions& options) {
  require_positive(options.memory_bytes, "memory_bytes");
  require_positive(options.host_memory_bytes, "host_memory_bytes");
  if (options.memory_bytes && options.gpu_reserve_bytes) {
    throw InvalidOption({{.option = "memory_bytes", .value = std::to_string(*options.memory_bytes)}},
                        "a reserve is kept back from a GPU's free memory, not from a given budget");
  }
  RunTarget target{.name = options.device,
                   .threads = compute_threads(options.threads, devices_of_machine(options))};
  if (options.device == "auto") {
    resolve_auto(target, options);
  } else if (options.device.starts_with(kGpuPrefix)) {
    const int ordinal = parse_ordinal(options.device);
    target.gpus = gpus_of(options);
    resolve_gpu(target, options, ordinal);
  } else if (options.gpu_reserve_bytes) {
    throw InvalidArgument("only a GPU has a reserve of memory: device '" + options.device + "' is not a GPU");
  } else if (options.device == "cpu") {
    resolve_cpu(target, options);
  } else if (options.device.starts_with(kSimPrefix)) {
    resolve_sim(target, options);
  } else {
    throw InvalidArgument("unknown device '" + options.device + "'" +
                          did_you_mean(options.device, device_names()) +
                          ": use auto, cpu, cuda:N, sim:NAME or sim:FILE.json");
  }
  return target;
}

}  // namespace vdnn
