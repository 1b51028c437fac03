#pragma once
// Counts the memory of tensors on the CPU, which PyTorch does not count, by an allocator around PyTorch's
// own.

#include <atomic>
#include <cstdint>

namespace vdnn::door {

class CpuMemory {
 public:
  // Replaces PyTorch's allocator by the counting allocator; further calls do nothing. `already`: bytes in use
  // at the call. `poison`: whether to fill freed memory.
  static void count(std::int64_t already, bool poison);
  // The bytes in use; 0 before count().
  static std::int64_t bytes() { return bytes_.load(std::memory_order_relaxed); }
  static std::int64_t peak() { return peak_.load(std::memory_order_relaxed); }
  static void reset_peak() { peak_ = bytes_.load(); }
  // The peak since the last call. It includes the memory that operations need between two saves or reads.
  static std::int64_t take_recent_peak() { return recent_peak_.exchange(bytes()); }

  static void restart_recent_peak() { take_recent_peak(); }

  static void add(std::int64_t bytes);

 private:
  static std::atomic<std::int64_t> bytes_;
  static std::atomic<std::int64_t> peak_;
  static std::atomic<std::int64_t> recent_peak_;
};

}  // namespace vdnn::door
