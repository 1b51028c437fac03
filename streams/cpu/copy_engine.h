#pragma once
// One direction of the link between device and host: one copy at a time, at most at the link's rate.

#include <cstdint>
#include <mutex>
#include <optional>

namespace vdnn {

class CopyEngine {
 public:
  // Without a rate, copies run as fast as memcpy().
  explicit CopyEngine(std::optional<double> bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Blocks until the engine is free. Hold the lock during the copy.
  [[nodiscard]] std::unique_lock<std::mutex> occupy() { return std::unique_lock(mutex_); }

  // Call occupy() first. The ranges must not overlap.
  void transfer(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes) const;

 private:
  const std::optional<double> bytes_per_second_;
  std::mutex mutex_;
};

}  // namespace vdnn
