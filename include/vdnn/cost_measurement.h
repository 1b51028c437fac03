#pragma once
// Measures the times of a run's ops on its device, and the rates of its link.
//
// Ops are timed in whole training steps, on the compute stream, with operands that other ops have just
// written to device memory. One op in a loop would find its operands in the caches. The device's trace has
// the time of each launch; the first step is left out. Further steps run with the next algorithm of each op
// that has several. If these algorithms do not fit into the budget together, each half of them runs in steps
// of its own, and so on. An algorithm that does not fit even alone is left out. Steps run under `none` if
// that fits, otherwise under `conv` or `all`, on synthetic samples.

#include <cstdint>
#include <functional>
#include <optional>

#include "vdnn/measured_costs.h"
#include "vdnn/planned_run.h"

namespace vdnn {

struct CostMeasurementOptions {
  // Steps timed for each choice of algorithms; micro-steps if the run accumulates gradients. At least 5, and
  // at least as many as the micro-steps of one update.
  std::uint64_t steps = 20;
  std::uint64_t seed = 1;  // of parameters and samples
  // Limits the rate of copies, as in SessionOptions.
  std::optional<double> link_gbytes_per_second;
  // Called before each choice of algorithms runs. The argument is the number of launches of the tape that are
  // timed with this choice. May be empty.
  std::function<void(std::size_t)> progress;
};

// Takes minutes if a step takes seconds. Throws InvalidArgument for a simulated device and for too few steps,
// DoesNotFit if the ops do not even fit with their smallest workspaces.
MeasuredCosts measure_costs(const PlannedRun& run, const CostMeasurementOptions& options = {});

}  // namespace vdnn
