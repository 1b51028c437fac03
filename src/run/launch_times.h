#pragma once
// The times of a stream's launches, from a trace of whole steps.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/measured_costs.h"

namespace vdnn {

// The times of all launches of one name, by name.
using LaunchSeconds = std::map<std::string, std::vector<double>, std::less<>>;

// A launch counts from the end of the stream's previous event, a launch or a wait. So its time includes the
// gap between the two. Launches named `first`, if it is not empty, count from their own beginning, since the
// stream may have been idle. The first event of the trace does not count.
LaunchSeconds launch_seconds(std::span<const TraceEvent> trace, StreamId stream, std::string_view first = {});

// The median and the distance between the quartiles. Needs at least one launch.
MeasuredTime time_of(const std::vector<double>& seconds);

}  // namespace vdnn
