#pragma once
// Page-locked memory that a program has given back, kept for the next who asks for just as much with the same
// flags. Sizes are exact: page-locking is what costs, not the search, and rounding would lock memory for
// nothing.

#include <compare>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

namespace vdnn::preload {

struct HostBlock {
  int ordinal = 0;  // of the GPU whose reset ends it
  unsigned flags = 0;
  std::uint64_t bytes = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang 14 takes the comparison with 0 for one
  friend auto operator<=>(const HostBlock&, const HostBlock&) = default;
};

struct HostMemory {
  void* address = nullptr;
  HostBlock block;
};

// Thread-safe. Knows addresses, and touches no memory. Only add() asks the heap for anything.
class HostCache {
 public:
  explicit HostCache(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Something like `block` that is kept, or null.
  void* take(const HostBlock& block);
  // What the runtime has given. Throws std::bad_alloc, and does not know it then.
  void add(void* address, const HostBlock& block);
  // Whether it is in use and came through here.
  bool is_in_use(void* address) const;
  // True: it is kept; false: it is forgotten, and is to be given back to the runtime. What may be `busy` is
  // not kept.
  bool give(void* address, bool busy = false);
  // Forgets something that is kept, of that GPU or of any, to be given back to the runtime; nothing: none is.
  std::optional<HostMemory> release(std::optional<int> ordinal = std::nullopt);
  // The GPU is reset: what is in use there will be gone.
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
  // What changes hands is a node of either, so that it cannot get lost on the way.
  std::multiset<HostMemory, ByBlock> kept_;
  std::set<HostMemory, ByAddress> in_use_;
};

}  // namespace vdnn::preload
