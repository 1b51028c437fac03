#pragma once
// Measures what the ops of a run cost on its device, and what its link carries.
//
// Times are taken as they are in training: of whole steps, on the compute stream, from operands that other
// ops have just left in device memory, and not of one op in a loop, which would find everything in the
// caches. The device's trace says how long each launch took; a first step is left out. Where ops have several
// algorithms, further steps are run with the next one of each; what does not fit into the budget with the
// others is tried in halves, and what does not fit alone is left out. Steps are under `none` where that fits,
// else `conv`, else `all`, on synthetic samples, and learn nothing.

#include <cstdint>
#include <functional>
#include <optional>

#include "vdnn/measured_costs.h"
#include "vdnn/planned_run.h"

namespace vdnn {

struct CostMeasurementOptions {
  // That are timed for each choice of algorithms, micro-steps where the run accumulates. At least 5, and at
  // least one that updates: as many as are accumulated.
  std::uint64_t steps = 20;
  std::uint64_t seed = 1;  // of parameters and samples
  // As in SessionOptions.
  std::optional<double> link_gbytes_per_second;
  // Told before each choice of algorithms is run, with the number of launches of the tape that it is to time.
  // May be empty.
  std::function<void(std::size_t)> progress;
};

// Takes minutes where steps take seconds. Throws InvalidArgument for a simulated device and for too few
// steps, OutOfMemory where the ops do not even fit with their least workspaces.
MeasuredCosts measure_costs(const PlannedRun& run, const CostMeasurementOptions& options = {});

}  // namespace vdnn
