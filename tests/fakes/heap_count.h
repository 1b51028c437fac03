#pragma once
// Counts what a thread takes from the heap. A test program that uses it has heap_count.cpp among its sources,
// which replaces the global operators.

#include <cstdint>

namespace vdnn {

// By the calling thread since it started.
std::uint64_t heap_allocations();

}  // namespace vdnn
