#pragma once
// Costs learned from the steps of a run. A plan is made with expected costs: a profile's rates, or a file of
// `vdnn profile`. Its steps show the true times of ops and copies that run at the same time and share caches.
// A device's trace of some steps corrects the costs, and the next plan (replan_run(), Session::replan())
// suits the machine better.
//
// * The time of an op is the median over its launches, including those that recompute its values.
// * An algorithm that was not launched keeps its ratio to the launched one: if that one needs twice its
//   expected time, so do all algorithms of the op. An algorithm of an earlier trace keeps its time.
// * The rates of the link are medians over the bytes copied, for each direction alone and beside the other.
//   Without copies in both directions at once, the rate for both ways keeps its ratio to that of one way. If
//   every copy overlapped one in the other direction for some time, both rates keep their ratio, and all
//   copies together determine them. The rate for both ways never exceeds that of one way. A direction without
//   copies keeps its rates.
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

// The costs in the run's predictions: the measured times that it was planned with, otherwise seconds from its
// profile's rates (without launches; modelled for a simulated device), and the rates of the link as devices
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
    double shared_seconds = 0;  // the part of `seconds` beside copies in the other direction
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
