#pragma once
// Turns status codes of vdnn/allocator.h into the exceptions that C++ programs expect of an allocator.
// Header-only, C++17.

#include <cstddef>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "vdnn/allocator.h"

namespace vdnn {

// The device or the host has no memory left; what() has the numbers. Does not use the heap, which may be
// exhausted.
class AllocatorShortage : public std::bad_alloc {
 public:
  explicit AllocatorShortage(const char* text) noexcept { std::snprintf(text_, sizeof text_, "%s", text); }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[512];
};

// Throws the exception for a failed call that this thread has just made, with the text of vdnn_last_error():
// AllocatorShortage for lack of memory, std::invalid_argument for a mistake of the caller,
// std::runtime_error for any other failure.
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
