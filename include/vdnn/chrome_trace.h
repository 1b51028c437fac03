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
// A wait is named "wait", and its argument `for` names the awaited work. Copies have their bytes and GB/s
// (10^9 bytes per second) as arguments. `stream_names` is indexed by StreamId. `last_launch`: the name of the
// last work of each step. If it is given, one more track shows the steps, each from the end of the previous
// step. Throws InvalidArgument for an event on a stream without a name, before anything is written, and
// DataError if `out` fails.
void write_chrome_trace(std::ostream& out, const std::string& process_name,
                        std::span<const std::string> stream_names, std::span<const TraceEvent> events,
                        std::string_view last_launch = {});

}  // namespace vdnn
