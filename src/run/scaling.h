#pragma once
// What devices that train together come to: how long an update takes, and what is lost to their reductions
// and to the link that they share. Predicted, as everything that PlannedRun says is.

#include "vdnn/planned_run.h"

namespace vdnn {

struct Scaling {
  double update_seconds = 0;     // all micro-steps of it
  double images_per_second = 0;  // of all devices together
  // Part of the images a second that so many devices would compute if each were the only one: the same batch,
  // accumulation, policy and budget, nothing to reduce, and a link to the host that nobody shares. Where the
  // policy chooses algorithms, they may differ.
  double efficiency = 1;
  double reduce_seconds = 0;  // of an update: its reductions one after the other
  // An update would be so much shorter if they took no time. At least 0.
  double exposed_reduce_seconds = 0;
};

// Where several devices train, as long as planning for one takes. Throws what plan_run() throws.
Scaling predict_scaling(const PlannedRun& run);

}  // namespace vdnn
