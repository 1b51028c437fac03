#pragma once
// The heap of a test program, with counted allocations that can be made to fail. A program that uses this has
// heap.cpp among its sources, which replaces the global operators.

#include <cstdint>

namespace vdnn {

// Allocations of the calling thread since it started.
std::uint64_t heap_allocations();

// Live allocations of the process.
std::uint64_t heap_blocks();

// While this object lives, it counts allocations of all threads, except those of oneDNN, which leaks memory
// if one of its allocations fails. The `fail_at`-th counted allocation (from 1; 0: none) throws
// std::bad_alloc; with kFromThenOn, all later ones throw, too. Only one object may exist at a time.
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
