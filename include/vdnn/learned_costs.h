#pragma once
// Costs as a run has seen them. Whatever a plan was made with (a profile's rates, or a file of `vdnn
// profile`), its steps show what ops and copies take in truth, beside each other and with the caches that
// they leave. A device's trace of some steps corrects the costs, and a plan that is made with those
// (replan_run(), Session::replan()) is made for the machine as it is.
//
// * An op takes the median of its launches, those that compute its values once more included.
// * An algorithm that was not launched keeps the relation to the one that was: where that takes twice what
//   was expected, all algorithms of the op are expected to take twice as long. One that was launched in an
//   earlier trace keeps what it took then.
// * The link carries what it carried, each direction alone and beside the other; medians over the bytes that
//   were copied. Where nothing was copied both ways at once, that rate keeps its relation to the one of one
//   way; where every copy had company for some of its time, both keep it, and all copies together say how
//   fast they are. Both ways at once is never faster than one way. Of a direction in which nothing was copied
//   nothing is learned. What a copy takes besides its bytes is taken as expected: steps have few copies of
//   small values.

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

// What the run's predictions go by: the measured times that it was planned with, or else the seconds that
// follow from its profile's rates (of no launches; of a simulated device: modelled), and the link as it is
// shared by now. with_costs() of them changes nothing.
MeasuredCosts expected_costs(const PlannedRun& run);

// What traces have shown. Not synchronised.
class StepObservations {
 public:
  // `trace` (Device::take_trace()) is of steps of that schedule, as many as there are; whatever else is in it
  // is passed over. `compute` is the stream that its launches are on. Of an op and algorithm, and of a
  // direction of the link, the last trace that has seen it counts. Throws InvalidArgument, and changes
  // nothing, where the trace has no launch of the schedule.
  void add(const Tape& tape, const Schedule& schedule, StreamId compute, std::span<const TraceEvent> trace);

  // A copy of a value between host and device, in one of the steps.
  struct SeenCopy {
    std::uint64_t bytes = 0;
    double seconds = 0;
    double shared_seconds = 0;  // of these: while there were copies of the other direction
  };

 private:
  friend MeasuredCosts learned_costs(const MeasuredCosts& expected, const StepObservations& seen);

  struct SeenOp {
    std::string algorithm;                      // that ran last
    std::map<std::string, MeasuredTime> times;  // by name of algorithm
  };
  std::map<std::string, SeenOp> ops_;
  std::array<std::vector<SeenCopy>, 2> copies_;  // by CopyDirection
};

// `expected` with what was seen in its place.
MeasuredCosts learned_costs(const MeasuredCosts& expected, const StepObservations& seen);

}  // namespace vdnn
