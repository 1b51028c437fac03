#include "src/run/launch_times.h"

#include <algorithm>
#include <iterator>

#include "src/base/median.h"

namespace vdnn {

namespace {

double quartile(std::vector<double> values, std::size_t quarters) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) * quarters / 4);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace

LaunchSeconds launch_seconds(std::span<const TraceEvent> trace, StreamId stream, std::string_view first) {
  std::vector<TraceEvent> events;
  std::ranges::copy_if(trace, std::back_inserter(events), [&](const TraceEvent& event) {
    return event.stream == stream && event.kind != TraceEvent::Kind::kCounter;
  });
  std::ranges::stable_sort(events, {}, &TraceEvent::begin_seconds);
  LaunchSeconds launches;
  for (std::size_t i = 1; i < events.size(); ++i) {
    const TraceEvent& event = events[i];
    if (event.kind == TraceEvent::Kind::kWork) {
      const bool begins = !first.empty() && event.name == first;
      launches[event.name].push_back(event.end_seconds -
                                     (begins ? event.begin_seconds : events[i - 1].end_seconds));
    }
  }
  return launches;
}

MeasuredTime time_of(const std::vector<double>& seconds) {
  return {.seconds = median(seconds),
          .spread_seconds = quartile(seconds, 3) - quartile(seconds, 1),
          .launches = seconds.size()};
}

}  // namespace vdnn
