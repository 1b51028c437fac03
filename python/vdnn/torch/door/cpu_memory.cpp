#include "cpu_memory.h"

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstring>

namespace vdnn::door {
namespace {

// A header before each block. Its size is the alignment on which PyTorch's kernels rely.
struct alignas(64) Header {
  std::size_t bytes;
};

constexpr int kPoison = 0xff;

c10::Allocator* inner = nullptr;
std::atomic<bool> poisons{false};

void raise(std::atomic<std::int64_t>& highest, std::int64_t now) {
  std::int64_t seen = highest.load(std::memory_order_relaxed);
  while (now > seen && !highest.compare_exchange_weak(seen, now)) {
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const block = inner->raw_allocate(sizeof(Header) + bytes);
    auto* const header = new (block) Header{bytes};
    CpuMemory::add(static_cast<std::int64_t>(bytes));
    void* const data = header + 1;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

 private:
  static void release(void* data) {
    if (data == nullptr) {
      return;
    }
    Header* const header = static_cast<Header*>(data) - 1;
    CpuMemory::add(-static_cast<std::int64_t>(header->bytes));
    if (poisons.load(std::memory_order_relaxed)) {
      std::memset(data, kPoison, header->bytes);
    }
    inner->raw_deallocate(header);
  }
};

}  // namespace

std::atomic<std::int64_t> CpuMemory::bytes_{0};
std::atomic<std::int64_t> CpuMemory::peak_{0};
std::atomic<std::int64_t> CpuMemory::recent_peak_{0};

void CpuMemory::add(std::int64_t bytes) {
  const std::int64_t now = bytes_ += bytes;
  raise(peak_, now);
  raise(recent_peak_, now);
}

void CpuMemory::count(std::int64_t already, bool poison) {
  if (poison) {
    poisons = true;
  }
  static const bool once = [already] {
    inner = c10::GetAllocator(c10::kCPU);
    add(already);
    // Never destroyed, since blocks of this allocator may live until the end of the process.
    c10::SetAllocator(c10::kCPU, new CountingAllocator, /*priority=*/255);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace vdnn::door
