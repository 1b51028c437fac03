// Writes the tables of docs/data_parallel.md in Markdown: predictions for simulated V100s that train
// together. The first table has four devices, with and without offload, and with and without overlap. Without
// overlap, all gradients are in one bucket, which is reduced after the whole backward pass. The second table
// has one to eight devices, and one to four machines of four devices each.
//
//   scaling_table

#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <string>

#include "src/run/scaling.h"
#include "vdnn/planned_run.h"

namespace {

using namespace vdnn;

constexpr std::uint64_t kOneBucket = std::uint64_t{1} << 40U;
constexpr std::uint64_t kAmple = std::uint64_t{1} << 46U;

// Options for four devices, whose batches have the same size.
RunOptions options_of(const std::string& model, Policy policy) {
  RunOptions options{.model = {.model = model, .batch = 64},
                     .device = "sim:v100-16",
                     .host_memory_bytes = kAmple,
                     .policy = policy};
  options.training.ranks = 4;
  return options;
}

void print_figures(const PlannedRun& run) {
  const Scaling scaling = predict_scaling(run);
  std::cout << std::fixed << std::setprecision(1) << " | " << scaling.update_seconds * 1e3 << " | "
            << scaling.reduce_seconds * 1e3 << " | " << scaling.exposed_reduce_seconds * 1e3 << " | "
            << std::setprecision(0) << scaling.images_per_second << " | " << std::setprecision(3)
            << scaling.efficiency << " |" << std::endl;
}

constexpr const char* kFigures = "update, ms | reductions, ms | not hidden, ms | images/s | efficiency |\n";

void print_row(const std::string& model, const std::string& policy, RunOptions options) {
  for (const bool overlap : {true, false}) {
    options.training.bucket_bytes = overlap ? kBucketBytes : kOneBucket;
    const PlannedRun run = plan_run(options);
    std::cout << "| " << model << " | " << policy << " | " << (overlap ? "yes" : "no") << " | "
              << (run.prediction.peak_bytes >> 20U);
    print_figures(run);
  }
}

// Prints the row for `budget`, or for the smallest possible budget if the latter is larger.
void print_less_memory(const std::string& model, std::uint64_t budget) {
  RunOptions options = options_of(model, Policy::kOptimal);
  options.memory_bytes = budget;
  const PlannedRun run = plan_run(options);
  if (!run.fits()) {
    options.memory_bytes = run.smallest_budget_bytes();
  }
  print_row(model, run.fits() ? "optimal, in half of the memory" : "optimal, in the least memory", options);
}

void print_four_devices() {
  std::cout << "| network | offload | overlap | MiB | " << kFigures
            << "|---|---|---|---|---|---|---|---|---|\n";
  for (const std::string model : {"resnet50", "vgg16"}) {
    const RunOptions none = options_of(model, Policy::kOffloadNone);
    print_row(model, "none", none);
    print_row(model, "all", options_of(model, Policy::kOffloadAll));
    print_less_memory(model, plan_run(none).prediction.peak_bytes / 2);
  }
}

void print_more_devices() {
  std::cout << "\n| devices | machines | " << kFigures << "|---|---|---|---|---|---|---|\n";
  const auto row = [](std::uint32_t devices, std::uint32_t machines) {
    RunOptions options = options_of("resnet50", Policy::kOffloadNone);
    options.training.ranks = devices * machines;
    options.machines = machines;
    std::cout << "| " << devices << " | " << machines;
    print_figures(plan_run(options));
  };
  for (std::uint32_t devices = 1; devices <= 8; ++devices) {
    row(devices, 1);
  }
  for (std::uint32_t machines = 2; machines <= 4; ++machines) {
    row(4, machines);
  }
}

}  // namespace

int main() {
  try {
    print_four_devices();
    print_more_devices();
  } catch (const std::exception& error) {
    std::cerr << "scaling_table: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
