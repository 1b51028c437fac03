#include "fakes/heap_count.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace vdnn {

namespace {

thread_local std::uint64_t count = 0;

void* counted(void* memory) {
  ++count;
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

std::uint64_t heap_allocations() {
  return count;
}

}  // namespace vdnn

void* operator new(std::size_t bytes) {
  return vdnn::counted(std::malloc(std::max<std::size_t>(bytes, 1)));
}

// aligned_alloc wants whole multiples of the alignment.
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return vdnn::counted(std::aligned_alloc(unit, (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit));
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
