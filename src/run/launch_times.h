#pragma once
// Computes the times of a stream's launches from a trace of whole steps.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/measured_costs.h"

namespace vdnn {

// The times of all launches, by name.
using LaunchSeconds = std::map<std::string, std::vector<double>, std::less<>>;

// A launch's time counts from the end of the stream's previous event, which is a launch or a wait. So the
// time includes the gap between the two. The time of launches named `first` counts from their own beginning,
// since the stream may have been idle before. An empty `first` names no launch. The first event of the trace
// has no time.
LaunchSeconds launch_seconds(std::span<const TraceEvent> trace, StreamId stream, std::string_view first = {});

// The median of `seconds` and the distance between their quartiles. `seconds` must not be empty.
MeasuredTime time_of(const std::vector<double>& seconds);

}  // namespace vdnn
