#pragma once
// How many captures of streams the program has begun and not ended, by the functions that are hooked. CUDA
// itself does not say; and while there is one, all of its GPU may not be waited for.

#include <atomic>
#include <cstdint>

namespace vdnn::preload {

// Thread-safe.
class Captures {
 public:
  bool any() const { return count_.load() > 0; }
  void begin() { ++count_; }
  // One that was begun.
  void end() { --count_; }

 private:
  std::atomic<std::int64_t> count_{0};
};

}  // namespace vdnn::preload
