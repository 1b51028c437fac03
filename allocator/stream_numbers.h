#pragma once
// The numbers that streams have in clocks and frontiers, and two clocks of the work that the host knows to be
// done.
//
// A stream has a number only while another stream may have to wait for one of its points. When a number is
// given to another stream, the count continues; by then, all points of the earlier stream have been reached.
// The host and streams without a number share number 0, all of whose points have been reached.
//
// The clock `reached` contains all points that were seen to be done. The clock `done` changes only where the
// program's calls make the host wait; `reached` dominates it. Placement depends on `done` alone, and so not
// on how fast the device is.
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

  // Gives a number to a stream that has none. If it throws std::bad_alloc, nothing has changed.
  void give(PoolStream& stream);
  // Takes back the number of a stream, all of whose points have been reached.
  void take_back(PoolStream& stream);
  // The stream that has `number`; null if none has it.
  PoolStream* stream_of(StreamId number) const { return numbers_[number].stream; }
  // The stream with the next number, in turn over all numbers but the host's; null if no stream has it.
  PoolStream* next_in_turn();

  // The width of clocks.
  std::size_t size() const { return numbers_.size(); }
  // How many numbers streams have.
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
  std::vector<StreamId> free_numbers_;  // has capacity for all numbers
  std::size_t hand_ = 0;                // of next_in_turn()
  StreamClock done_;                    // as wide as size()
  StreamClock reached_;                 // as wide as size()
};

}  // namespace vdnn
