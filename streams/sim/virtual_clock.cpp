#include "streams/sim/virtual_clock.h"

#include <algorithm>

namespace vdnn {

TimeSpan VirtualClock::place(StreamId stream, double begin, double seconds) {
  Stream& mine = streams_[stream];
  mine.ends.push_back(begin + seconds);  // first: it may fail
  mine.ready = begin + seconds;
  mine.times.busy_seconds += seconds;
  return {.begin = begin, .end = mine.ready};
}

TimeSpan VirtualClock::run(StreamId stream, double seconds) {
  return place(stream, ready(stream), seconds);
}

TimeSpan VirtualClock::copy(StreamId stream, CopyDirection direction, double seconds) {
  double& engine = engine_ready_[static_cast<std::size_t>(direction)];
  const TimeSpan span = place(stream, std::max(ready(stream), engine), seconds);
  engine = span.end;
  return span;
}

TimeSpan VirtualClock::wait(StreamId stream, Point awaited) {
  const double begin = ready(stream);
  const TimeSpan span{.begin = begin, .end = std::max(begin, end(awaited))};
  Stream& mine = streams_[stream];
  mine.ready = span.end;
  mine.times.waiting_seconds += span.end - span.begin;
  return span;
}

double VirtualClock::ready(StreamId stream) const {
  return std::max(streams_[stream].ready, now_);
}

double VirtualClock::end(Point point) const {
  const Stream& other = streams_[point.stream];
  return point.count <= other.behind ? 0 : other.ends[point.count - other.behind - 1];
}

bool VirtualClock::reached(Point point) const {
  const Stream& other = streams_[point.stream];
  return point.count <= other.behind + other.ends.size() && end(point) <= now_;
}

void VirtualClock::synchronize(const Frontier& frontier) {
  for (const Point& point : frontier.points()) {
    now_ = std::max(now_, end(point));
  }
  for (Stream& stream : streams_) {
    const auto ahead = std::ranges::upper_bound(stream.ends, now_);
    stream.behind += static_cast<std::uint64_t>(ahead - stream.ends.begin());
    stream.ends.erase(stream.ends.begin(), ahead);
  }
}

double VirtualClock::finish() const {
  double finish = now_;
  for (const Stream& stream : streams_) {
    finish = std::max(finish, stream.ready);
  }
  return finish;
}

}  // namespace vdnn
