#pragma once
// Address space from the operating system, which the destructor releases.

#include <cstdint>
#include <optional>

#include "vdnn/device.h"

namespace vdnn {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

class Mapping {
 public:
  enum class Kind : std::uint8_t {
    kReserved,   // inaccessible, without memory
    kUntouched,  // accessible; a page is populated when it is touched
    kTouched,    // accessible, with every page populated
  };

  // Maps `bytes`, aligned to `alignment` (a power of two, at least kPageBytes). Empty if the system refuses.
  static std::optional<Mapping> make(std::uint64_t bytes, std::uint64_t alignment, Kind kind);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  AddressRange range() const { return range_; }
  // Gives up the mapping: it then stays until the process ends.
  AddressRange release();

 private:
  Mapping(AddressRange mapped, AddressRange range) : mapped_(mapped), range_(range) {}

  AddressRange mapped_;  // whole pages
  AddressRange range_;
};

// Pages of `range` that are not populated yet will lie on NUMA node `node` as long as the node has free
// memory. `range` must begin at a page. No effect if the system has no such node or does not permit it.
void prefer_node(AddressRange range, int node) noexcept;

// Lets the system populate `range` with huge pages, if it has them (MADV_HUGEPAGE). This affects only huge
// pages that lie entirely in `range`.
void prefer_huge_pages(AddressRange range) noexcept;

// Populates every page of the accessible `range` by writing. Contents do not change, and other threads may
// use the range meanwhile. Uses `threads` threads, the calling one included, or fewer if the system has no
// more.
void touch_pages(AddressRange range, unsigned threads);
// Likewise, with touching_threads() threads.
void touch_pages(AddressRange range);
// The number of threads worth using to populate `bytes` on a system with `processors` (0: unknown).
unsigned touching_threads(std::uint64_t bytes, unsigned processors);

}  // namespace vdnn
