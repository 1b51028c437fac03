#pragma once
// How many submissions of a stream have completed: what other streams and the host wait for.

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace vdnn {

// Thread-safe.
class Progress {
 public:
  // Whoever sees the count sees everything that was written before this call.
  void reach(std::uint64_t count) {
    {
      const std::lock_guard lock(mutex_);
      completed_ = count;
    }
    advanced_.notify_all();
  }

  bool reached(std::uint64_t count) const {
    const std::lock_guard lock(mutex_);
    return completed_ >= count;
  }

  void wait_for(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    advanced_.wait(lock, [&] { return completed_ >= count; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable advanced_;
  std::uint64_t completed_ = 0;
};

}  // namespace vdnn
