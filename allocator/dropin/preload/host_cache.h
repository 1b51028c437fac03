#pragma once
// Page-locked memory that a program has freed, kept for the next request of the same size and flags. Sizes
// are not rounded to classes: that would lock memory that the program does not use.

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

// Thread-safe. Stores addresses and never accesses the memory. Only add() needs the heap.
class HostCache {
 public:
  explicit HostCache(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Hands out kept memory with the GPU, flags and size of `block`; null if there is none.
  void* take(const HostBlock& block);
  // Adds memory in use that the runtime has allocated. If it throws std::bad_alloc, nothing has changed.
  void add(void* address, const HostBlock& block);
  // Whether the cache knows the memory and it is in use.
  bool is_in_use(void* address) const;
  // Takes memory back. True: the cache keeps it. False: the cache has forgotten it, and the caller must free
  // it with the runtime. The cache does not keep memory that work may still use (`busy`).
  bool give(void* address, bool busy = false);
  // Removes one kept block of the GPU `ordinal`, or of any GPU, and returns it; the caller must free it with
  // the runtime. Empty if no block is kept.
  std::optional<HostMemory> release(std::optional<int> ordinal = std::nullopt);
  // Forgets the memory in use of a GPU that is being reset, since the reset frees it.
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
  mutable std::mutex mutex_;  // guards the members below
  std::uint64_t kept_bytes_ = 0;
  // Both sets have the same type of node, so a block moves between them without an allocation that could
  // fail.
  std::multiset<HostMemory, ByBlock> kept_;
  std::set<HostMemory, ByAddress> in_use_;
};

}  // namespace vdnn::preload
