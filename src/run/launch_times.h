#pragma once
// What a trace of whole steps says of the launches of a stream.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/measured_costs.h"

namespace vdnn {

// By name.
using LaunchSeconds = std::map<std::string, std::vector<double>, std::less<>>;

// Each launch could begin when the one before was done, and whatever the stream waited for: the gap in front
// of it is part of it. A launch called `first`, where that is not empty, counts from its own beginning: the
// stream may have had nothing to do before. The very first event of all, before which nothing is known, does
// not count.
LaunchSeconds launch_seconds(std::span<const TraceEvent> trace, StreamId stream, std::string_view first = {});

// The median, and from quartile to quartile. Of at least one launch.
MeasuredTime time_of(const std::vector<double>& seconds);

}  // namespace vdnn
