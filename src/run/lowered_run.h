#pragma once
// Lowers the network of a run with the catalog of its device. The catalog has cuDNN's engines for a GPU,
// oneDNN's primitives for `cpu`, and recorded engines or the classic algorithms for a simulated GPU.

#include <memory>

#include "vdnn/gpu_system.h"
#include "vdnn/network.h"
#include "vdnn/op_library.h"
#include "vdnn/planned_run.h"

namespace vdnn {

struct Lowered {
  std::shared_ptr<OpLibrary> library;
  std::shared_ptr<const OpCatalog> catalog;
  std::shared_ptr<const Tape> tape;
  ProductPrecisions precisions = {};
  EngineTiming engine_timing = EngineTiming::kOff;
  std::shared_ptr<const EngineTrialReport> trials = {};
};

// `so_far`: earlier trials of engines in this run, which count towards the limit on trial time. Throws
// InvalidOption for options that the device does not support, and InvalidArgument for a network that the
// device cannot compute.
Lowered lower_for(const Network& network, const RunOptions& options, const RunTarget& target, Policy policy,
                  const EngineTrialReport& so_far = {});

// Throws InvalidOption if the limit on trial time is not finite, is below 0 or contradicts `engine_timings`.
void require_trial_seconds(const RunOptions& options);

// Whether the policy decides the algorithms of ops.
bool chooses_algorithms(Policy policy);
// The engines that are timed on a GPU under this policy.
EngineTiming engine_timing(const RunOptions& options, Policy policy);
// True for the device `cpu` and for the simulated `cpu`.
bool computes_on_cpu(const RunTarget& target);

}  // namespace vdnn
