#pragma once
// Several pools under one limit: each has a LimitedBackend on the same SharedLimit, which counts the bytes
// that all of them have committed. The budget of each pool applies as well. A pool may commit memory that
// another pool has given back (StreamPool::trim(), the high-water mark).

#include <atomic>
#include <cstdint>

#include "vdnn/error.h"
#include "vdnn/forwarding_backend.h"

namespace vdnn {

// Thread-safe.
class SharedLimit {
 public:
  explicit SharedLimit(std::uint64_t bytes) : bytes_(bytes) {}

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  // Counts `bytes` as taken. Returns false and changes nothing if that would exceed the limit.
  bool take(std::uint64_t bytes) {
    std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - taken) {
        return false;
      }
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(std::uint64_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const std::uint64_t bytes_;
  std::atomic<std::uint64_t> taken_{0};
};

// As thread-safe as its target. Target and limit must outlive it. The constructor throws InvalidArgument if
// granules of the target cannot be mapped (PoolBackendProperties::maps).
class LimitedBackend final : public ForwardingBackend {
 public:
  LimitedBackend(PoolBackend& target, SharedLimit& limit);

  // Throws OutOfMemory beyond the limit.
  GranuleHandle create_granule() override;
  void destroy_granule(GranuleHandle granule) override;

 private:
  SharedLimit& limit_;
};

}  // namespace vdnn
