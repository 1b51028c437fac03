#pragma once
// What vdnn/allocator.h answers, as the exceptions that programs in C++ expect of an allocator. Headers
// alone, C++17.

#include <cstddef>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "vdnn/allocator.h"

namespace vdnn {

// Memory that cannot be had, of the device or of the host, with the numbers. Without the heap, which may be
// what is exhausted.
class AllocatorShortage : public std::bad_alloc {
 public:
  explicit AllocatorShortage(const char* text) noexcept { std::snprintf(text_, sizeof text_, "%s", text); }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[512];
};

// Of the call that this thread has just made. Throws AllocatorShortage for want of memory,
// std::invalid_argument for what the caller passed, std::runtime_error for what the device refused, each with
// vdnn_last_error().
inline void throw_unless_ok(vdnn_status status) {
  switch (status) {
    case VDNN_OK:
      return;
    case VDNN_OUT_OF_MEMORY:
    case VDNN_NO_HOST_MEMORY:
      throw AllocatorShortage(vdnn_last_error());
    case VDNN_INVALID_ARGUMENT:
      throw std::invalid_argument(vdnn_last_error());
    default:
      throw std::runtime_error(vdnn_last_error());
  }
}

}  // namespace vdnn
