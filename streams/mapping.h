#pragma once
// Address space from the operating system, given back when the object dies.

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
    kUntouched,  // accessible; a page comes when it is touched
    kTouched,    // accessible, and every page is there already
  };

  // `bytes`, aligned to `alignment` (a power of two, at least kPageBytes). Empty where the system refuses.
  static std::optional<Mapping> make(std::uint64_t bytes, std::uint64_t alignment, Kind kind);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  AddressRange range() const { return range_; }
  // It stays until the process ends.
  AddressRange release();

 private:
  Mapping(AddressRange mapped, AddressRange range) : mapped_(mapped), range_(range) {}

  AddressRange mapped_;  // whole pages
  AddressRange range_;
};

// Pages of `range`, which begins on one, that are not there yet come from the host's memory at NUMA node
// `node` while it has any. From anywhere, as before, where the system has no such node or does not permit it.
void prefer_node(AddressRange range, int node) noexcept;

// Pages of `range` that are not there yet may come as huge ones, where the system has these (MADV_HUGEPAGE):
// those that lie in it as a whole.
void prefer_huge_pages(AddressRange range) noexcept;

// Populates every page of the accessible `range` by writing. Contents stay, and other threads may use the
// range meanwhile. Uses this number of threads, the calling one included, or fewer if the system has no more.
void touch_pages(AddressRange range, unsigned threads);
// By touching_threads().
void touch_pages(AddressRange range);
// The number of threads that pays for this number of bytes on a system with `processors`; 0: unknown.
unsigned touching_threads(std::uint64_t bytes, unsigned processors);

}  // namespace vdnn
