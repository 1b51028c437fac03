#pragma once
// A vector clock as one array: for each stream, the number of its submissions that are covered. It suits
// clocks with points on most streams: joining is one pass without branches, and one access tests whether a
// point is dominated. A clock with points on a few streams is a frontier (vdnn/frontier.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "vdnn/frontier.h"

namespace vdnn {

// A value type; not synchronised. Only copying, widen(), and a join() that has to widen need memory.
class StreamClock {
 public:
  std::uint64_t count(StreamId stream) const { return stream < counts_.size() ? counts_[stream] : 0; }
  bool dominates(Point point) const { return count(point.stream) >= point.count; }

  // Afterwards, set() and raise() accept streams below `streams`.
  void widen(std::size_t streams) {
    if (counts_.size() < streams) {
      counts_.resize(streams);
    }
  }
  // Call widen() for `stream` first.
  void set(StreamId stream, std::uint64_t count) { counts_[stream] = count; }
  void raise(Point point) { counts_[point.stream] = std::max(counts_[point.stream], point.count); }
  void join(const StreamClock& other) {
    widen(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i) {
      counts_[i] = std::max(counts_[i], other.counts_[i]);
    }
  }
  void clear() { counts_.clear(); }

 private:
  std::vector<std::uint64_t> counts_;  // by stream
};

// The points that a requester is ordered after: those that its stream knows of, and those that the host knows
// to be done.
class StreamKnowledge {
 public:
  // Both clocks must outlive this object.
  StreamKnowledge(const StreamClock& own, const StreamClock& done) : own_(own), done_(done) {}

  bool dominates(Point point) const { return own_.dominates(point) || done_.dominates(point); }
  bool dominates(const Frontier& frontier) const {
    return std::ranges::all_of(frontier.points(), [this](Point point) { return dominates(point); });
  }

 private:
  const StreamClock& own_;
  const StreamClock& done_;
};

}  // namespace vdnn
