#pragma once
// A list that grows at its end while other threads read it without a lock: elements keep their address for
// the life of the list. They lie in blocks of 1, 2, 4, ... elements, which are never moved.

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>

namespace vdnn {

// Append and remove from one thread at a time. Any thread may read elements below size() meanwhile.
template <class T>
class AppendOnlyList {
 public:
  std::size_t size() const { return size_.load(std::memory_order_acquire); }
  // `index` is below size().
  T& operator[](std::size_t index) { return *locate(index); }
  const T& operator[](std::size_t index) const { return *locate(index); }

  // Adds a default-constructed element and calls fill() on it. Other threads see the element once size()
  // includes it. Changes nothing if it throws std::bad_alloc. At most 2^32 - 1 elements.
  template <class Fill>
  void append(const Fill& fill) {
    const std::size_t index = size_.load(std::memory_order_relaxed);
    const std::size_t block = block_of(index);
    if (!blocks_[block]) {
      blocks_[block] = std::make_unique<T[]>(std::size_t{1} << block);
    }
    fill(*locate(index));
    size_.store(index + 1, std::memory_order_release);
  }
  // Call it only if no other thread can have seen the last element.
  void remove_last() noexcept {
    const std::size_t last = size_.load(std::memory_order_relaxed) - 1;
    *locate(last) = T{};
    size_.store(last, std::memory_order_release);
  }

 private:
  // Setting the lowest bit changes no result: it only makes the width at least 1 whatever `index` is.
  static std::size_t block_of(std::size_t index) { return std::bit_width((index + 1) | 1U) - 1; }
  T* locate(std::size_t index) const {
    const std::size_t block = block_of(index);
    return &blocks_[block][index + 1 - (std::size_t{1} << block)];
  }

  std::array<std::unique_ptr<T[]>, 32> blocks_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace vdnn
