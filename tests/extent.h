#pragma once
// How much a test tries of what has no natural end: seeds, networks, points of failure.

#include <cstdint>
#include <cstdlib>

namespace vdnn::testing {

struct Extent {
  std::uint64_t usual;
  std::uint64_t under_sanitizers;  // instrumented programs are many times slower
  std::uint64_t in_long_run;       // ctest's second run of what CMake declares LONG
};

inline std::uint64_t extent(const Extent& of) noexcept {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return of.under_sanitizers;
#else
  return std::getenv("VDNN_LONG_RUN") == nullptr ? of.usual : of.in_long_run;
#endif
}

}  // namespace vdnn::testing
