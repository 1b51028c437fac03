#pragma once
// Arrays of zeros in which only accessed pages need memory.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace vdnn {

struct FreeZeroed {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Zeroed = std::unique_ptr<T[], FreeZeroed>;

template <class T>
Zeroed<T> zeroed(std::uint64_t count) {
  static_assert(std::is_trivially_destructible_v<T>);
  Zeroed<T> memory(static_cast<T*>(std::calloc(count, sizeof(T))));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace vdnn
