#pragma once
// How a predicted step spends its time: the compute stream computes, recomputes, or waits for a copy or a
// reduction over the ranks.

#include <cstdint>
#include <span>
#include <vector>

#include "vdnn/predictor.h"
#include "vdnn/schedule.h"

namespace vdnn {

// A launch that cannot begin although the compute stream is ready for it.
struct StalledLaunch {
  std::uint32_t launch = kNone;  // index of its instruction
  double begin_seconds = 0;
  double seconds = 0;
  // The copy or reduction at whose end the launch begins; kNone: no copy or reduction ends at that time.
  std::uint32_t transfer = kNone;
  bool of_the_step_before = false;  // whether that transfer belongs to the previous step
};

// The parts add up to the step.
struct StepTime {
  double step_seconds = 0;
  double compute_seconds = 0;
  double recompute_seconds = 0;
  double stall_seconds = 0;           // includes the first launch's wait for the previous step
  std::vector<StalledLaunch> stalls;  // longest first
};

// `prediction` must be that of the schedule, with a trace.
StepTime step_time(const Schedule& schedule, const Prediction& prediction);

// The part of these copies' time in which the compute stream does not wait for them.
double hidden_share(const StepTime& time, const Prediction& prediction,
                    std::span<const std::uint32_t> copies);

// When a copy runs, and the part of its time in which the compute stream does not wait for it. 1: the copy
// costs only its share of the link.
struct CopyTime {
  double begin_seconds = 0;  // since the end of the previous step
  double seconds = 0;
  double hidden_share = 1;
};
CopyTime copy_time(const StepTime& time, const Prediction& prediction, std::uint32_t copy);

}  // namespace vdnn
