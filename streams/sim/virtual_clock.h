#pragma once
// Time on a simulated device: eager list scheduling. Each submission is placed as soon as it is made, at the
// earliest time that its stream, the stream's waits, the engine of a copy's direction and the host's own
// clock allow. Engines run copies in the order of submission, as the hardware's queues do.
//
// Cost: a few additions and comparisons for each submission. The end of a point is stored until the host's
// clock has passed it; from then on, the point cannot delay later work.

#include <array>
#include <cstdint>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/frontier.h"

namespace vdnn {

struct TimeSpan {
  double begin = 0;
  double end = 0;
};

// Not synchronised.
class VirtualClock {
 public:
  void add_stream() { streams_.emplace_back(); }

  // Places the next submission of `stream`, which takes `seconds`.
  TimeSpan run(StreamId stream, double seconds);
  // The same for a copy, which needs the engine of its direction. While a copy of the other direction is
  // running, the new copy proceeds at the rate of a copy that takes `seconds_both_ways` (not less than
  // `seconds`). Copies that were placed earlier keep their times: of two copies that share the link, only the
  // later one is slowed down.
  TimeSpan copy(StreamId stream, CopyDirection direction, double seconds, double seconds_both_ways);
  // Makes the stream wait until the end of `awaited`, which must have been placed. The span is empty if the
  // stream does not have to wait. The time for which a stream is idle because the host is late is not part
  // of the span.
  TimeSpan wait(StreamId stream, Point awaited);

  // The time at which the next submission of `stream` could start.
  double ready(StreamId stream) const;
  // Advances the host's clock to the time at which `frontier` is complete.
  void synchronize(const Frontier& frontier);
  // Whether the host's clock has passed the end of `point`; false for a point that has not been submitted.
  bool reached(Point point) const;

  double now() const { return now_; }
  double finish() const;
  StreamTimes times(StreamId stream) const { return streams_[stream].times; }

 private:
  struct Stream {
    double ready = 0;
    StreamTimes times;
    std::uint64_t behind = 0;  // number of dropped ends: those that the host has passed
    std::vector<double> ends;  // of the submissions after those, ascending
  };
  // The end of `point`, or 0 if the host has passed it.
  double end(Point point) const;
  TimeSpan place(StreamId stream, double begin, double seconds);

  struct Engine {
    double ready = 0;
    std::vector<TimeSpan> busy;  // ahead of the host's clock, ascending
  };
  // The duration of a copy from `begin` on, while `other` is busy.
  static double seconds_beside(const Engine& other, double begin, double seconds, double seconds_both_ways);

  double now_ = 0;
  std::array<Engine, 2> engines_;  // by CopyDirection
  std::vector<Stream> streams_;
};

}  // namespace vdnn
