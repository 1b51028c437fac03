#pragma once
// Derives the options of planning from the options of a run.

#include "vdnn/planned_run.h"

namespace vdnn {

inline PlanOptions plan_options(const RunOptions& options, Policy policy) {
  return {.policy = policy,
          .preference = options.algorithms,
          .workspace_limit = options.workspace_limit,
          .keep_algorithms = options.keep_algorithms,
          .recorded = options.recorded_algorithms};
}

}  // namespace vdnn
