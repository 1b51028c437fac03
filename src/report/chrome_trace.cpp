#include "vdnn/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;

// Perfetto keeps whole nanoseconds. Rounds both ends, never the duration, so that events that touch still
// touch after rounding, and bars of one track never overlap.
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

// The rate of a copy with at least four significant digits.
double gbytes_per_second(const TraceEvent& copy) {
  return std::round(static_cast<double>(copy.value) / (copy.end_seconds - copy.begin_seconds) / 1e6) / 1e3;
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
  if (event.kind == TraceEvent::Kind::kWork && event.value > 0) {
    result["args"] = {{"bytes", event.value}};
    if (event.end_seconds > event.begin_seconds) {
      result["args"]["GB/s"] = gbytes_per_second(event);
    }
  }
  return result;
}

double first_second(std::span<const TraceEvent> events) {
  return std::ranges::min_element(events, {}, &TraceEvent::begin_seconds)->begin_seconds;
}

// Each step runs from the end of the previous one, the first from the first event.
std::vector<TraceEvent> steps_of(std::span<const TraceEvent> events, StreamId track,
                                 std::string_view last_launch) {
  std::vector<double> ends;
  for (const TraceEvent& event : events) {
    if (event.kind == TraceEvent::Kind::kWork && event.name == last_launch) {
      ends.push_back(event.end_seconds);
    }
  }
  std::ranges::sort(ends);
  std::vector<TraceEvent> steps;
  for (const double end : ends) {
    const double begin = steps.empty() ? first_second(events) : steps.back().end_seconds;
    steps.push_back({.stream = track,
                     .name = "step " + std::to_string(steps.size() + 1),
                     .begin_seconds = begin,
                     .end_seconds = end});
  }
  return steps;
}

// A name that is not UTF-8 must not prevent the trace.
std::string line(const Json& event) {
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void write_chrome_trace(std::ostream& out, const std::string& process_name,
                        std::span<const std::string> stream_names, std::span<const TraceEvent> events,
                        std::string_view last_launch) {
  for (const TraceEvent& event : events) {
    if (event.stream >= stream_names.size()) {
      throw InvalidArgument("trace: '" + event.name + "' is on stream " + std::to_string(event.stream) +
                            ", but only " + std::to_string(stream_names.size()) + " streams have names");
    }
  }
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      << line(metadata("process_name", 0, "name", process_name));
  const auto name_track = [&](StreamId track, const std::string& name) {
    out << ",\n" << line(metadata("thread_name", track, "name", name));
    out << ",\n" << line(metadata("thread_sort_index", track, "sort_index", track));
  };
  for (StreamId stream = 0; stream < stream_names.size(); ++stream) {
    name_track(stream, stream_names[stream]);
  }
  const std::int64_t origin = events.empty() ? 0 : nanoseconds(first_second(events));
  for (const TraceEvent& event : events) {
    out << ",\n"
        << line(event.kind == TraceEvent::Kind::kCounter ? counter(event, origin) : bar(event, origin));
  }
  const auto steps_track = static_cast<StreamId>(stream_names.size());
  const std::vector<TraceEvent> steps = steps_of(events, steps_track, last_launch);
  if (!steps.empty()) {
    name_track(steps_track, "steps");
  }
  for (const TraceEvent& step : steps) {
    out << ",\n" << line(bar(step, origin));
  }
  out << "\n]}\n" << std::flush;
  if (!out) {
    throw DataError("trace: writing failed");
  }
}

}  // namespace vdnn
