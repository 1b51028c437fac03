#pragma once
// Page-locked memory that a program has freed, kept for the next request of the same size and flags. Sizes
// are exact: page-locking is expensive, the search is not, and rounding would lock memory in vain.

#include <compare>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

namespace vdnn::preload {

struct HostBlock {
  int ordinal = 0;  // of the GPU whose reset frees it
  unsigned flags = 0;
  std::uint64_t bytes = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang 14 mistakes the comparison with 0 for a null pointer
  friend auto operator<=>(const HostBlock&, const HostBlock&) = default;
};

struct HostMemory {
  void* address = nullptr;
  HostBlock block;
};

// Thread-safe. Keeps addresses and touches no memory. Only add() needs the heap.
class HostCache {
 public:
  explicit HostCache(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Hands out kept memory like `block`; null if there is none.
  void* take(const HostBlock& block);
  // Adds memory that the runtime has allocated; it is in use. Throws std::bad_alloc, and nothing changes
  // then.
  void add(void* address, const HostBlock& block);
  // Whether the memory is in use and was handed out here.
  bool is_in_use(void* address) const;
  // Takes memory back. True: it is kept. False: it is forgotten, and the caller must free it by the runtime.
  // Memory that work may still use (`busy`) is not kept.
  bool give(void* address, bool busy = false);
  // Forgets one kept block of that GPU, or of any, which the caller must free by the runtime; empty if none
  // is kept.
  std::optional<HostMemory> release(std::optional<int> ordinal = std::nullopt);
  // The GPU is reset, which frees its memory in use.
  void forget(int ordinal);

 private:
  struct ByAddress {
    using is_transparent = void;
    static const void* of(const void* address) { return address; }
    static const void* of(const HostMemory& memory) { return memory.address; }
    template <class One, class Other>
    bool operator()(const One& one, const Other& other) const {
      return std::less<>()(of(one), of(other));
    }
  };
  struct ByBlock {
    using is_transparent = void;
    static const HostBlock& of(const HostBlock& block) { return block; }
    static const HostBlock& of(const HostMemory& memory) { return memory.block; }
    template <class One, class Other>
    bool operator()(const One& one, const Other& other) const {
      return of(one) < of(other);
    }
  };

  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t kept_bytes_ = 0;
  // Both have the same type of node, so a block moves between them without memory and cannot get lost.
  std::multiset<HostMemory, ByBlock> kept_;
  std::set<HostMemory, ByAddress> in_use_;
};

}  // namespace vdnn::preload
