#pragma once
// Executes submitted work in a random order, one of all orders that streams and waits permit. A seed
// determines the order.
//
// Each stream is a queue. Its head is ready if it is a piece of work, or a wait for a point that has been
// executed. The next head to execute is drawn from the ready ones with equal probability. Each device also
// draws how soon work runs after its submission: from "only when the host waits" to "almost immediately".
// The generator is SplitMix64, so that a seed means the same order on all systems.

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "src/base/random.h"
#include "vdnn/frontier.h"

namespace vdnn {

// Not synchronised.
class RandomOrder {
 public:
  explicit RandomOrder(std::uint64_t seed);

  void add_stream() { streams_.emplace_back(); }

  // Adds the next submission of `stream`, and may execute some work.
  void submit(StreamId stream, std::function<void()> execute);
  // Calls `execute` as soon as all earlier items of the stream have been executed. The call does not count
  // as a submission.
  void follow(StreamId stream, std::function<void()> execute);
  // Adds a wait for `awaited`, which must have been submitted. `execute` is called when the wait is over.
  void wait(StreamId stream, Point awaited, std::function<void()> execute);

  bool executed(Point point) const { return streams_[point.stream].executed >= point.count; }
  // Executes random ready work until `frontier` is reached; all points of `frontier` must have been
  // submitted.
  void run_until(const Frontier& frontier);

 private:
  struct Item {
    enum class Kind : std::uint8_t { kWork, kFollow, kWait };
    Kind kind = Kind::kWork;
    Point awaited;  // count 0: nothing
    std::function<void()> execute;
  };
  struct Stream {
    std::deque<Item> queue;
    std::uint64_t executed = 0;
  };
  void settle(Stream& stream);
  // Removes from the heads all waits that are over and all items that follow() has added. Returns the streams
  // that then have work at their heads.
  const std::vector<StreamId>& ready();
  bool run_one();

  SplitMix64 random_;
  std::uint64_t eagerness_;  // in eighths
  std::vector<Stream> streams_;
  std::vector<StreamId> ready_;
};

}  // namespace vdnn
