#pragma once
// PyTorch has no figure for the memory of tensors on the CPU. An allocator around its own counts what it
// hands out.

#include <atomic>
#include <cstdint>

namespace vdnn::door {

class CpuMemory {
 public:
  // Puts the counting allocator in the place of PyTorch's; further calls do nothing. `already`: in use
  // before.
  static void count(std::int64_t already, bool poison);
  // 0 where it is not counted.
  static std::int64_t bytes() { return bytes_.load(std::memory_order_relaxed); }
  static std::int64_t peak() { return peak_.load(std::memory_order_relaxed); }
  static void reset_peak() { peak_ = bytes_.load(); }

  static void add(std::int64_t bytes);

 private:
  static std::atomic<std::int64_t> bytes_;
  static std::atomic<std::int64_t> peak_;
};

}  // namespace vdnn::door
