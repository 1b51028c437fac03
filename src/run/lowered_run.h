#pragma once
// The network of a run, lowered with the catalog of its device: cuDNN's engines on a GPU, oneDNN's primitives
// on `cpu`, recorded engines or the classic algorithms on a simulated GPU.

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

// `so_far`: earlier trials of engines in this run, which count towards its limit. Throws InvalidOption for
// options that the device does not support, InvalidArgument for a network that it cannot compute.
Lowered lower_for(const Network& network, const RunOptions& options, const RunTarget& target, Policy policy,
                  const EngineTrialReport& so_far = {});

// Throws InvalidOption if the limit on trial time is not finite, is below 0 or contradicts `engine_timings`.
void require_trial_seconds(const RunOptions& options);

bool chooses_algorithms(Policy policy);
// Which engines are timed on a GPU under this policy.
EngineTiming engine_timing(const RunOptions& options, Policy policy);
// True on the device `cpu`, simulated or not.
bool computes_on_cpu(const RunTarget& target);

}  // namespace vdnn
