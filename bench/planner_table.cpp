// Writes the table of docs/planner.md in Markdown: step times of each network of the zoo on three simulated
// GPUs. Budgets are shares of the baseline's peak. For each budget, the table shows the time under `optimal`,
// the lower bound, and the time under the best other policy. All are multiples of the time of the fastest
// algorithms in unlimited memory.
//
//   planner_table [sim:NAME ...]

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "vdnn/planned_run.h"
#include "vdnn/zoo.h"

namespace {

using namespace vdnn;

constexpr std::array kPercents{100, 80, 60, 40, 30, 20, 15, 10};
constexpr std::uint64_t kAmple = std::uint64_t{1} << 46U;
constexpr double kNever = std::numeric_limits<double>::infinity();

// The batch: 128, or less for U-Net and for the deepest VGG networks (vgg116 to vgg416).
std::int64_t batch_of(const std::string& model) {
  if (model == "unet") {
    return 8;
  }
  return model.starts_with("vgg") && model.size() == 6 ? 32 : 128;
}

RunOptions options_of(const std::string& model, const std::string& device, Policy policy,
                      std::uint64_t budget) {
  return {.model = {.model = model, .batch = batch_of(model)},
          .device = device,
          .memory_bytes = budget,
          .host_memory_bytes = kAmple,
          .policy = policy};
}

double best_other(const PlannedRun& run, std::uint64_t budget) {
  double best = kNever;
  for (const Policy policy : {Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
    for (const AlgorithmPreference preference :
         {AlgorithmPreference::kPerformance, AlgorithmPreference::kMemory}) {
      const Prediction other = predict_policy(run, {.policy = policy, .preference = preference});
      best = other.peak_bytes <= budget ? std::min(best, other.step_seconds) : best;
    }
  }
  return best;
}

std::string ratio(double seconds, double oracle) {
  if (seconds == kNever) {
    return "-";
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << seconds / oracle;
  return text.str();
}

void print_row(const std::string& model, const std::string& device) {
  const PlannedRun baseline = plan_run(options_of(model, device, Policy::kBaseline, kAmple));
  const double oracle = oracle_step_seconds(baseline);
  std::cout << "| " << model << " | " << (baseline.prediction.peak_bytes >> 20U);
  for (const int percent : kPercents) {
    const std::uint64_t budget = baseline.prediction.peak_bytes * static_cast<std::uint64_t>(percent) / 100;
    const PlannedRun optimal = plan_run(options_of(model, device, Policy::kOptimal, budget));
    std::cout << " | "
              << (optimal.fits() ? ratio(optimal.prediction.step_seconds, oracle) + " (" +
                                       ratio(lower_bound_step_seconds(optimal), oracle) + ") " +
                                       ratio(best_other(baseline, budget), oracle)
                                 : "-");
  }
  std::cout << " |" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> devices(argv + 1, argv + argc);
  if (devices.empty()) {
    devices = {"sim:titan-x", "sim:v100-16", "sim:h200"};
  }
  try {
    for (const std::string& device : devices) {
      std::cout << "\n" << device << ":\n\n| network | MiB";
      for (const int percent : kPercents) {
        std::cout << " | " << percent << " %";
      }
      std::cout << " |\n|---|---";
      for (std::size_t column = 0; column < kPercents.size(); ++column) {
        std::cout << "|---";
      }
      std::cout << "|\n";
      for (const std::string& model : model_names()) {
        print_row(model, device);
      }
    }
  } catch (const std::exception& error) {
    std::cerr << "planner_table: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
