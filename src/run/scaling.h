#pragma once
// Predicts the speed of devices that train together: how long an update takes, and how much time their
// reductions and the shared link cost.

#include "vdnn/planned_run.h"

namespace vdnn {

struct Scaling {
  double update_seconds = 0;     // all micro-steps of an update
  double images_per_second = 0;  // of all devices together
  // The rate divided by that of the same number of independent devices. An independent device has the same
  // batch, accumulation, policy and budget, no reductions, and a host link of its own. Its algorithms may
  // differ if the policy chooses them.
  double efficiency = 1;
  double reduce_seconds = 0;  // all reductions of an update, one after the other
  // How much shorter an update would be if its reductions took no time. At least 0.
  double exposed_reduce_seconds = 0;
};

// For several devices, also plans the run for one device, which takes most of the time. Throws the exceptions
// of plan_run().
Scaling predict_scaling(const PlannedRun& run);

}  // namespace vdnn
