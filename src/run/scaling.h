#pragma once
// Predicts the speed of devices that train together. Computes how long an update takes, and how much of that
// time is due to reductions and to the shared link.

#include "vdnn/planned_run.h"

namespace vdnn {

struct Scaling {
  double update_seconds = 0;     // all micro-steps of an update
  double images_per_second = 0;  // of all devices together
  // `images_per_second`, divided by the rate of the same number of independent devices. An independent device
  // has the same batch, micro-steps, policy and budget. It has no reductions, and a host link of its own. If
  // the policy chooses algorithms, the independent device may use other algorithms.
  double efficiency = 1;
  double reduce_seconds = 0;  // all reductions of an update, one after the other
  // By how many seconds an update would be shorter if its reductions took no time. At least 0.
  double exposed_reduce_seconds = 0;
};

// If several devices train together, also plans the run for one device, which is most of the call's work.
// Throws the exceptions of plan_run().
Scaling predict_scaling(const PlannedRun& run);

}  // namespace vdnn
