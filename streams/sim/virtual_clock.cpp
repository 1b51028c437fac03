#include "streams/sim/virtual_clock.h"

#include <algorithm>

namespace vdnn {

TimeSpan VirtualClock::place(StreamId stream, double begin, double seconds) {
  Stream& mine = streams_[stream];
  mine.ends.push_back(begin + seconds);  // first, since it may throw
  mine.ready = begin + seconds;
  mine.times.busy_seconds += seconds;
  return {.begin = begin, .end = mine.ready};
}

TimeSpan VirtualClock::run(StreamId stream, double seconds) {
  return place(stream, ready(stream), seconds);
}

double VirtualClock::seconds_beside(const Engine& other, double begin, double seconds,
                                    double seconds_both_ways) {
  double now = begin;
  double left = 1;  // fraction of the copy
  auto each = std::ranges::upper_bound(other.busy, begin, {}, &TimeSpan::end);
  for (; each != other.busy.end(); ++each) {
    const TimeSpan& busy = *each;
    const double alone = std::max(0.0, busy.begin - now);
    if (left * seconds <= alone) {
      break;
    }
    now += alone;
    left -= alone / seconds;
    if (left * seconds_both_ways <= busy.end - now) {
      return now + left * seconds_both_ways - begin;
    }
    left -= (busy.end - now) / seconds_both_ways;
    now = busy.end;
  }
  return now + left * seconds - begin;
}

TimeSpan VirtualClock::copy(StreamId stream, CopyDirection direction, double seconds,
                            double seconds_both_ways) {
  Engine& engine = engines_[static_cast<std::size_t>(direction)];
  const Engine& other = engines_[1 - static_cast<std::size_t>(direction)];
  const double begin = std::max(ready(stream), engine.ready);
  if (engine.busy.size() == engine.busy.capacity()) {
    engine.busy.reserve(2 * engine.busy.size() + 16);  // first, since it may throw
  }
  const TimeSpan span = place(stream, begin, seconds_beside(other, begin, seconds, seconds_both_ways));
  engine.busy.push_back(span);
  engine.ready = span.end;
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
  for (Engine& engine : engines_) {
    const auto ahead = std::ranges::upper_bound(engine.busy, now_, {}, &TimeSpan::end);
    engine.busy.erase(engine.busy.begin(), ahead);
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
