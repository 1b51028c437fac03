#pragma once
// Costs learned from the steps of a run. A plan is made with expected costs: a profile's rates, or a file of
// `vdnn profile`. Its steps show the true times of ops and copies that run at the same time and share caches.
// A device's trace of some steps corrects the costs, and the next plan (replan_run(), Session::replan())
// suits the machine better.
//
// * The time of an op is the median over its launches, including those that recompute its values.
// * An algorithm that was not launched keeps its ratio to the launched one: if the launched algorithm needs
//   twice its expected time, the times of all algorithms of the op are doubled. An algorithm that only an
//   earlier trace contains keeps its time from that trace.
// * The rates of the link are medians over the bytes copied, for each direction alone and while the other is
//   busy. Without copies in both directions at once, the rate for both ways keeps its ratio to that of one
//   way. If every copy overlapped copies in the other direction during a part of its time, both rates keep
//   their ratio, and all copies together determine them. The rate for both ways never exceeds that of one
//   way. A direction without copies keeps its rates.
// * The fixed time of a copy stays as expected, since steps have few copies of small values.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/measured_costs.h"
#include "vdnn/planned_run.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// The costs in the run's predictions. Times are the measured ones that the run was planned with. Without
// measured times, they follow from the rates of its profile, and every MeasuredTime::launches is 0; for a
// simulated device they are marked as modelled. The rates of the link are those that remain when devices
// share it. with_costs() with these costs changes nothing.
MeasuredCosts expected_costs(const PlannedRun& run);

// Times from traces. Not thread-safe.
class StepObservations {
 public:
  // Adds a trace (Device::take_trace()) of any number of steps of the schedule; other events are ignored.
  // `compute` is the stream of the launches. For each op with an algorithm, and each direction of the link,
  // the last trace that contains it counts. Throws InvalidArgument, without any effect, if the trace has no
  // launch of the schedule.
  void add(const Tape& tape, const Schedule& schedule, StreamId compute, std::span<const TraceEvent> trace);

  // One copy of a value between host and device.
  struct SeenCopy {
    std::uint64_t bytes = 0;
    double seconds = 0;
    double shared_seconds = 0;  // the part of `seconds` in which the other direction was busy
  };

 private:
  friend MeasuredCosts learned_costs(const MeasuredCosts& expected, const StepObservations& seen);

  struct SeenOp {
    std::string algorithm;                      // of the last launch
    std::map<std::string, MeasuredTime> times;  // by name of algorithm
  };
  std::map<std::string, SeenOp> ops_;
  std::array<std::vector<SeenCopy>, 2> copies_;  // by CopyDirection
};

// `expected`, corrected by the observations.
MeasuredCosts learned_costs(const MeasuredCosts& expected, const StepObservations& seen);

}  // namespace vdnn
