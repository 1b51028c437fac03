#pragma once
// A range of addresses.

#include <cstdint>

namespace vdnn {

// Bytes [begin, begin + bytes) of a device's or of the host's address space. Addresses of `sim` mean nothing
// outside the device and must not be dereferenced.
struct AddressRange {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;

  std::uint64_t end() const { return begin + bytes; }
  bool overlaps(const AddressRange& other) const { return begin < other.end() && other.begin < end(); }
  // Whether `other` lies inside this range. Correct even if the end of `other` overflows 64 bits.
  bool contains(const AddressRange& other) const {
    return begin <= other.begin && other.bytes <= bytes && other.begin - begin <= bytes - other.bytes;
  }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

// Converts an address to a host pointer. Valid for work that runs on `cpu`, and for page-locked memory on
// every driver that touches memory.
template <class T>
T* pointer_to(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace vdnn
