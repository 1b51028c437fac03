#pragma once
// Address space from the operating system, given back when the object dies.

#include <cstdint>
#include <optional>

#include "vdnn/device.h"

namespace vdnn {

inline constexpr std::uint64_t kPageBytes = 4096;

class Mapping {
 public:
  enum class Kind : std::uint8_t {
    kReserved,   // inaccessible and without memory behind it
    kUntouched,  // accessible; a page comes when it is touched
    kTouched,    // accessible, and every page is there already
  };

  // `bytes`, aligned to `alignment` (a power of two, at least kPageBytes). Empty where the system refuses.
  static std::optional<Mapping> make(std::uint64_t bytes, std::uint64_t alignment, Kind kind);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  AddressRange range() const { return range_; }

 private:
  Mapping(AddressRange mapped, AddressRange range) : mapped_(mapped), range_(range) {}

  AddressRange mapped_;  // includes what alignment cost
  AddressRange range_;
};

// Pages of `range`, which begins on one, that are not there yet come from the host's memory at NUMA node
// `node` while it has any. From anywhere, as before, where the system has no such node or does not permit it.
void prefer_node(AddressRange range, int node) noexcept;

// Makes every page of `range`, which is accessible, be there; what it holds stays. No other thread may write
// to it meanwhile.
void touch_pages(AddressRange range);

}  // namespace vdnn
