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
  // The peak since the last call. An operation needs memory between two tensors that it saves or reads, which
  // a budget is about, too.
  static std::int64_t take_recent_peak() { return recent_peak_.exchange(bytes()); }

  static void restart_recent_peak() { take_recent_peak(); }

  static void add(std::int64_t bytes);

 private:
  static std::atomic<std::int64_t> bytes_;
  static std::atomic<std::int64_t> peak_;
  static std::atomic<std::int64_t> recent_peak_;
};

}  // namespace vdnn::door
