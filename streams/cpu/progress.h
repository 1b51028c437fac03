#pragma once
// The number of a stream's completed submissions, for which other streams and the host wait.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

namespace vdnn {

// Thread-safe.
class Progress {
 public:
  // Sets the number of completed submissions. A thread that sees the new count sees everything that was
  // written before this call.
  void reach(std::uint64_t count) {
    {
      const std::lock_guard lock(mutex_);
      completed_ = count;
      if (count < least_awaited_) {
        return;
      }
      least_awaited_ = kNobody;
    }
    advanced_.notify_all();
  }

  bool reached(std::uint64_t count) const {
    const std::lock_guard lock(mutex_);
    return completed_ >= count;
  }

  void wait_for(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    while (completed_ < count) {
      least_awaited_ = std::min(least_awaited_, count);
      advanced_.wait(lock);
    }
  }

 private:
  static constexpr std::uint64_t kNobody = std::numeric_limits<std::uint64_t>::max();

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable advanced_;
  std::uint64_t completed_ = 0;
  // The lowest count that a thread waits for. A wait is usually for work far ahead: a wake-up at each
  // earlier completion would cost the worker one system call per op and would wake the thread too early.
  std::uint64_t least_awaited_ = kNobody;
};

}  // namespace vdnn
