#include "fakes/heap.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace vdnn {

namespace {

thread_local std::uint64_t of_thread = 0;
std::atomic<std::int64_t> blocks = 0;
std::atomic<bool> armed = false;
std::atomic<std::uint64_t> while_armed = 0;
std::atomic<std::uint64_t> failing = 0;

template <class Allocate>
void* counted(const Allocate& allocate) {
  ++of_thread;
  if (armed.load(std::memory_order_relaxed) && ++while_armed == failing) {
    throw std::bad_alloc();
  }
  void* const memory = allocate();
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  ++blocks;
  return memory;
}

void give_back(void* memory) {
  if (memory != nullptr) {
    --blocks;
    std::free(memory);
  }
}

}  // namespace

std::uint64_t heap_allocations() {
  return of_thread;
}

std::uint64_t heap_blocks() {
  return static_cast<std::uint64_t>(blocks.load());
}

HeapFailure::HeapFailure(std::uint64_t fail_at) {
  while_armed = 0;
  failing = fail_at;
  armed = true;
}

HeapFailure::~HeapFailure() {
  armed = false;
}

std::uint64_t HeapFailure::allocations() const {
  return while_armed;
}

}  // namespace vdnn

void* operator new(std::size_t bytes) {
  return vdnn::counted([&] { return std::malloc(std::max<std::size_t>(bytes, 1)); });
}

// aligned_alloc wants whole multiples of the alignment.
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return vdnn::counted(
      [&] { return std::aligned_alloc(unit, (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit); });
}

void operator delete(void* memory) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  vdnn::give_back(memory);
}
