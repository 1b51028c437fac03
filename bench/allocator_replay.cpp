// Replays allocation logs against this project's pools, plain allocation and models of PyTorch's rules, and
// prints what each takes from the device at most over what is live at most:
//   allocator_replay tests/data/traces/*.txt

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bench/replay.h"
#include "bench/replayed_pools.h"
#include "bench/torch_rules.h"
#include "vdnn/error.h"

namespace vdnn::bench {
namespace {

struct Contestant {
  const char* name;
  std::unique_ptr<ReplayedAllocator> (*make)();
};

constexpr Contestant kContestants[] = {
    {"plain", [] { return std::unique_ptr<ReplayedAllocator>(std::make_unique<PlainAllocation>()); }},
    {"device pool",
     [] { return std::unique_ptr<ReplayedAllocator>(std::make_unique<ReplayedDevicePool>()); }},
    {"torch",
     [] { return std::unique_ptr<ReplayedAllocator>(std::make_unique<TorchRules>(TorchSegments::kFixed)); }},
    {"expandable",
     [] {
       return std::unique_ptr<ReplayedAllocator>(std::make_unique<TorchRules>(TorchSegments::kExpandable));
     }},
};

AllocationLog read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw DataError(path + ": cannot be read");
  }
  return read_allocation_log(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string stem(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.rfind('.'));
}

void print_header() {
  std::printf("%-24s %10s", "log", "live, MiB");
  for (const Contestant& contestant : kContestants) {
    std::printf(" %12s", contestant.name);
  }
  std::printf("\n");
}

void print_row(const std::string& path, bool one_stream, std::size_t steps) {
  AllocationLog log = read(path);
  if (one_stream) {
    for (AllocationEvent& event : log.events) {
      event.stream = 0;
    }
  }
  const auto live = static_cast<double>(peak_live_bytes(log));
  std::printf("%-24s %10.1f", stem(path).c_str(), live / (1 << 20));
  for (const Contestant& contestant : kContestants) {
    const auto allocator = contestant.make();
    const Replay done = replay(log, steps, *allocator);
    std::printf(" %12.3f", static_cast<double>(done.peak_reserved_bytes) / live);
  }
  std::printf("\n");
}

int run(int count, char** arguments) {
  CLI::App app("Replays allocation logs: peak reserved over peak live");
  std::vector<std::string> paths;
  std::size_t steps = 3;
  bool one_stream = false;
  app.add_option("log", paths, "Allocation logs")->required();
  app.add_option("--steps", steps, "How often a log's step is repeated")->check(CLI::PositiveNumber);
  app.add_flag("--one-stream", one_stream, "As if everything was done on one stream");
  CLI11_PARSE(app, count, arguments);
  print_header();
  for (const std::string& path : paths) {
    print_row(path, one_stream, steps);
  }
  return 0;
}

}  // namespace
}  // namespace vdnn::bench

int main(int count, char** arguments) {
  try {
    return vdnn::bench::run(count, arguments);
  } catch (const std::exception& error) {
    std::cerr << "allocator_replay: " << error.what() << "\n";
    return 1;
  }
}
