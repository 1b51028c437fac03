#pragma once
// The numbers that streams have in clocks and frontiers, and two clocks of the work that the host knows to be
// done.
//
// A stream has a number only while its points may matter. A number that goes to another stream continues its
// count; all points of the stream that had it before have been reached. The host and streams without a number
// share number 0, all of whose points have been reached.
//
// Placement depends on `done` alone, which changes only where the program's calls make the host wait. So
// placement does not depend on how fast the device is. `reached` contains all points that were seen to be
// done; it dominates `done`.
//
// Guarded by the pool's lock.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool_stream.h"
#include "allocator/stream_clock.h"
#include "vdnn/frontier.h"

namespace vdnn {

class StreamNumbers {
 public:
  explicit StreamNumbers(PoolStream& host) { numbers_.push_back({.stream = &host, .count = 0}); }

  // A number for a stream that has none. Throws only std::bad_alloc, and then nothing changes.
  void give(PoolStream& stream);
  // All points of the stream must have been reached.
  void take_back(PoolStream& stream);
  // Null if no stream has the number.
  PoolStream* stream_of(StreamId number) const { return numbers_[number].stream; }
  // Visits all numbers but the host's in turn; null if no stream has the next one.
  PoolStream* next_in_turn();

  // How wide clocks are, and how many numbers streams have.
  std::size_t size() const { return numbers_.size(); }
  std::size_t given() const { return numbers_.size() - 1 - free_numbers_.size(); }

  const StreamClock& done() const { return done_; }
  const StreamClock& reached() const { return reached_; }
  void raise_done(Point point) {
    done_.raise(point);
    reached_.raise(point);
  }
  void join_done(const StreamClock& clock) {
    done_.join(clock);
    reached_.join(clock);
  }
  void join_reached(const StreamClock& clock) { reached_.join(clock); }
  // Whether all epochs of the stream that have ended are done.
  bool is_settled(const PoolStream& stream) const {
    return stream.number == 0 || done_.count(stream.number) >= stream.epoch;
  }

 private:
  struct Number {
    PoolStream* stream = nullptr;  // null: none has it
    std::uint64_t count = 0;       // where the next stream's epochs begin
  };

  std::vector<Number> numbers_;         // the first is the host's
  std::vector<StreamId> free_numbers_;  // has room for all
  std::size_t hand_ = 0;                // of next_in_turn()
  StreamClock done_;                    // has room for all numbers; so has the next
  StreamClock reached_;
};

}  // namespace vdnn
