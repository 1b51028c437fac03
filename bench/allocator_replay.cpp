// Replays allocation logs on this project's pools, plain allocation and models of PyTorch's rules. Prints,
// for each log and allocator, the ratio of the peak of device memory to the peak of live bytes.
//
//   allocator_replay tests/data/traces/*.txt

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/comparison.h"
#include "vdnn/error.h"

namespace vdnn::bench {
namespace {

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
  for (const Contestant& contestant : contestants()) {
    std::printf(" %12s", contestant.name);
  }
  std::printf("\n");
}

void print_row(const Comparison& comparison) {
  std::printf("%-24s %10.1f", comparison.log.c_str(), static_cast<double>(comparison.live_bytes) / (1 << 20));
  for (const Outcome& outcome : comparison.outcomes) {
    std::printf(" %12.3f", outcome.reserved_over_live);
  }
  std::printf("\n");
}

// Prints each contestant's time per call and its waits between streams. The time includes reading the
// contestant's figures after the call.
void print_costs(const Comparison& comparison) {
  std::printf("%-35s", "  ns a call, waits");
  for (const Outcome& outcome : comparison.outcomes) {
    std::printf(" %6.0f %5llu", outcome.replay.seconds * 1e9 / static_cast<double>(outcome.replay.calls),
                static_cast<unsigned long long>(outcome.replay.waits));
  }
  std::printf("\n");
}

struct Asked {
  std::vector<std::string> paths;
  std::size_t steps = 3;
  double least_mib = 0;
  bool one_stream = false;
  bool costs = false;
  bool markdown = false;
};

void print(const Comparison& comparison, const Asked& asked) {
  if (asked.markdown) {
    std::printf("%s\n", markdown_row(comparison).c_str());
    return;
  }
  print_row(comparison);
  if (asked.costs) {
    print_costs(comparison);
  }
}

void compare_all(const Asked& asked) {
  asked.markdown ? static_cast<void>(std::printf("%s\n", markdown_header().c_str())) : print_header();
  for (const std::string& path : asked.paths) {
    AllocationLog log = read(path);
    if (asked.one_stream) {
      for (AllocationEvent& event : log.events) {
        event.stream = 0;
      }
    }
    if (static_cast<double>(peak_live_bytes(log)) >= asked.least_mib * (1 << 20)) {
      print(compare(stem(path), log, asked.steps), asked);
    }
  }
}

int run(int count, char** arguments) {
  CLI::App app("Replays allocation logs: peak reserved over peak live");
  Asked asked;
  app.add_option("log", asked.paths, "Allocation logs")->required();
  app.add_option("--steps", asked.steps, "How many times to run a log's step")->check(CLI::PositiveNumber);
  app.add_option("--least-live", asked.least_mib, "Omits logs with a lower peak of live bytes, in MiB")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--one-stream", asked.one_stream, "Puts all operations on one stream");
  app.add_flag("--costs", asked.costs, "Also prints times and waits");
  app.add_flag("--markdown", asked.markdown, "Prints the table of docs/allocator.md");
  CLI11_PARSE(app, count, arguments);
  compare_all(asked);
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
