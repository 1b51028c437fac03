#pragma once
// Short training runs on the cpu device, for tests that compare them.

#include <string>

#include "vdnn/planned_run.h"
#include "vdnn/trainer.h"

namespace vdnn::testing {

inline DatasetSplits data_for(const PlannedRun& run, const std::string& name) {
  const Dims& dims = run.network.type(run.network.input()).dims;
  const Dims& targets = run.network.type(run.network.targets()).dims;
  return open_dataset({.text = name,
                       .sample_dims = Dims(dims.begin() + 1, dims.end()),
                       .target_dims = Dims(targets.begin() + 1, targets.end()),
                       .classes = run.network.classes()});
}

inline constexpr Policy kPolicies[] = {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv,
                                       Policy::kOffloadAll};

}  // namespace vdnn::testing
