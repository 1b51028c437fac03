#pragma once
// The heap of a test program, counted and made to fail. A program that uses it has heap.cpp among its
// sources, which replaces the global operators.

#include <cstdint>

namespace vdnn {

// What the calling thread has taken since it started.
std::uint64_t heap_allocations();

// What the process has taken and not given back.
std::uint64_t heap_blocks();

// While it lives, allocations of all threads are counted, but for those that oneDNN makes, which leaks where
// it is refused one, and the `fail_at`-th (from 1; 0: none) throws std::bad_alloc, or that one and all that
// follow. One at a time.
class HeapFailure {
 public:
  enum class Kind : std::uint8_t { kOnce, kFromThenOn };
  explicit HeapFailure(std::uint64_t fail_at, Kind kind = Kind::kOnce);
  ~HeapFailure();
  HeapFailure(const HeapFailure&) = delete;
  HeapFailure& operator=(const HeapFailure&) = delete;

  std::uint64_t allocations() const;
};

}  // namespace vdnn
