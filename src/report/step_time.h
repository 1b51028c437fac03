#pragma once
// Where the time of a predicted step goes: the compute stream computes, computes again, or waits, and for
// which transfer, or for which reduction over the ranks.

#include <cstdint>
#include <span>
#include <vector>

#include "vdnn/predictor.h"
#include "vdnn/schedule.h"

namespace vdnn {

// A launch that the compute stream is ready for and that cannot begin yet.
struct StalledLaunch {
  std::uint32_t launch = kNone;  // an instruction
  double begin_seconds = 0;
  double seconds = 0;
  // The copy or reduction after which it begins; kNone: none ends just then.
  std::uint32_t transfer = kNone;
  bool of_the_step_before = false;  // that transfer
};

// They add up to the step.
struct StepTime {
  double step_seconds = 0;
  double compute_seconds = 0;
  double recompute_seconds = 0;
  double stall_seconds = 0;           // the first launch's wait for the step before included
  std::vector<StalledLaunch> stalls;  // longest first
};

// `prediction`: of that schedule, traced.
StepTime step_time(const Schedule& schedule, const Prediction& prediction);

// Of the time that these copies take, the part in which the compute stream does not stand still on their
// behalf.
double hidden_share(const StepTime& time, const Prediction& prediction,
                    std::span<const std::uint32_t> copies);

// When a copy runs, and for how much of that the compute stream does not stand still on its behalf. 1: costs
// nothing but its share of the link.
struct CopyTime {
  double begin_seconds = 0;  // since the step before was done
  double seconds = 0;
  double hidden_share = 1;
};
CopyTime copy_time(const StepTime& time, const Prediction& prediction, std::uint32_t copy);

}  // namespace vdnn
