#include "vdnn/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>

#include "vdnn/error.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;

// Perfetto keeps whole nanoseconds; what touches must still touch after rounding, so that bars of one track
// never overlap: both ends are rounded, never the duration.
std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

Json metadata(const char* what, StreamId stream, const char* key, const Json& value) {
  return {{"ph", "M"}, {"name", what}, {"pid", kProcess}, {"tid", stream}, {"args", {{key, value}}}};
}

Json counter(const TraceEvent& event, std::int64_t origin) {
  return {{"ph", "C"},
          {"name", event.name},
          {"pid", kProcess},
          {"ts", microseconds(nanoseconds(event.begin_seconds) - origin)},
          {"args", {{"bytes", event.value}}}};
}

Json bar(const TraceEvent& event, std::int64_t origin) {
  const bool waits = event.kind == TraceEvent::Kind::kWait;
  const std::int64_t begin = nanoseconds(event.begin_seconds);
  Json result = {{"ph", "X"},
                 {"name", waits ? "wait" : event.name},
                 {"cat", waits ? "wait" : "work"},
                 {"pid", kProcess},
                 {"tid", event.stream},
                 {"ts", microseconds(begin - origin)},
                 {"dur", microseconds(nanoseconds(event.end_seconds) - begin)}};
  if (waits && !event.name.empty()) {
    result["args"] = {{"for", event.name}};
  }
  return result;
}

// A name that is not UTF-8 must not lose the trace.
std::string line(const Json& event) {
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void write_chrome_trace(std::ostream& out, const std::string& process_name,
                        std::span<const std::string> stream_names, std::span<const TraceEvent> events) {
  for (const TraceEvent& event : events) {
    if (event.stream >= stream_names.size()) {
      throw InvalidArgument("trace: '" + event.name + "' is on stream " + std::to_string(event.stream) +
                            ", names are given for " + std::to_string(stream_names.size()));
    }
  }
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      << line(metadata("process_name", 0, "name", process_name));
  for (StreamId stream = 0; stream < stream_names.size(); ++stream) {
    out << ",\n" << line(metadata("thread_name", stream, "name", stream_names[stream]));
    out << ",\n" << line(metadata("thread_sort_index", stream, "sort_index", stream));
  }
  const auto earliest = std::ranges::min_element(events, {}, &TraceEvent::begin_seconds);
  const std::int64_t origin = earliest == events.end() ? 0 : nanoseconds(earliest->begin_seconds);
  for (const TraceEvent& event : events) {
    out << ",\n"
        << line(event.kind == TraceEvent::Kind::kCounter ? counter(event, origin) : bar(event, origin));
  }
  out << "\n]}\n" << std::flush;
  if (!out) {
    throw DataError("trace: writing failed");
  }
}

}  // namespace vdnn
