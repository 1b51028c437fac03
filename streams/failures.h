#pragma once
// The failures of a device in the order in which they happened. A stream fails once: nothing runs on it
// afterwards.

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "vdnn/frontier.h"

namespace vdnn {

// Thread-safe.
class Failures {
 public:
  // Reserves capacity for one more stream's failure, so that add() needs no memory.
  void add_stream() {
    const std::lock_guard lock(mutex_);
    failures_.reserve(++streams_);
  }

  // Adds a failure, unless the stream has failed already: only its first failure counts.
  void add(Point point, std::exception_ptr cause) noexcept {
    const std::lock_guard lock(mutex_);
    const auto same_stream = [point](const Failure& other) { return other.point.stream == point.stream; };
    if (std::ranges::none_of(failures_, same_stream)) {
      failures_.push_back({point, std::move(cause)});
    }
  }

  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    failures_.clear();
  }

  // The failure of the stream, or null if it has not failed.
  std::exception_ptr of(StreamId stream) const {
    return first([stream](Point point) { return point.stream == stream; });
  }
  // The first failure whose point `frontier` dominates, or null.
  std::exception_ptr in(const Frontier& frontier) const {
    return first([&frontier](Point point) { return frontier.dominates(point); });
  }

 private:
  struct Failure {
    Point point;
    std::exception_ptr cause;
  };

  template <class Predicate>
  std::exception_ptr first(const Predicate& matches) const {
    const std::lock_guard lock(mutex_);
    for (const Failure& failure : failures_) {
      if (matches(failure.point)) {
        return failure.cause;
      }
    }
    return nullptr;
  }

  mutable std::mutex mutex_;
  std::size_t streams_ = 0;
  std::vector<Failure> failures_;
};

}  // namespace vdnn
