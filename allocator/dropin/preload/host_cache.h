#pragma once
// Page-locked memory that a program has given back, kept for the next who asks for just as much with the same
// flags. Sizes are exact: page-locking is what costs, not the search, and rounding would lock memory for
// nothing.

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace vdnn::preload {

struct HostBlock {
  int ordinal = 0;  // of the GPU whose reset ends it
  unsigned flags = 0;
  std::uint64_t bytes = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang 14 takes the comparison with 0 for one
  friend auto operator<=>(const HostBlock&, const HostBlock&) = default;
};

// Thread-safe. Knows addresses, and touches no memory.
class HostCache {
 public:
  explicit HostCache(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Something like `block` that is kept, or null.
  void* take(const HostBlock& block);
  // What the runtime has given.
  void add(void* address, const HostBlock& block);
  // Whether it is in use and came through here.
  bool is_in_use(void* address) const;
  // True: it is kept; false: it is forgotten, and is to be given back to the runtime. What may be `busy` is
  // not kept.
  bool give(void* address, bool busy = false);
  // Forgets all that is kept, to be given back to the runtime.
  std::vector<void*> drain();
  // The GPU was reset: what was locked there is gone.
  void forget(int ordinal);

 private:
  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t kept_bytes_ = 0;
  std::multimap<HostBlock, void*> kept_;
  std::map<void*, HostBlock> in_use_;
};

}  // namespace vdnn::preload
