#pragma once
// Timelines in the Chrome trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: one
// track per stream, one counter track per counter.

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "vdnn/device.h"

namespace vdnn {

// Writes `events` as one JSON object. Times are in microseconds since the earliest event, to the nanosecond.
// Waits are shown as "wait", with what they wait for among the arguments; copies with their bytes and GB/s
// (10^9 bytes per second). `stream_names` is indexed by StreamId. `last_launch`: the name of the work that
// each step ends with; one more track then shows the steps, each from the end of the previous one. Throws
// InvalidArgument for an event on a stream without a name, before anything is written, and DataError if `out`
// fails.
void write_chrome_trace(std::ostream& out, const std::string& process_name,
                        std::span<const std::string> stream_names, std::span<const TraceEvent> events,
                        std::string_view last_launch = {});

}  // namespace vdnn
