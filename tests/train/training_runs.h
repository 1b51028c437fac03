#pragma once
// Short training runs on the cpu device, for tests that compare them.

#include <string>

#include "vdnn/planned_run.h"
#include "vdnn/trainer.h"

namespace vdnn::testing {

inline DatasetSplits data_for(const PlannedRun& run, const std::string& name) {
  return open_dataset(dataset_options(run.own_network(), name, 1));
}

inline constexpr Policy kPolicies[] = {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv,
                                       Policy::kOffloadAll};

}  // namespace vdnn::testing
