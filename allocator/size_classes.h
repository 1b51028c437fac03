#pragma once
// Exact size classes of small blocks: every multiple of the unit up to 64 units, then 32 classes in each
// power of two. A request is rounded up to its class, so any free block of the class serves it. Beyond
// rounding to units, this wastes at most a 32nd of a block.

#include <bit>
#include <cstdint>

namespace vdnn {

class SizeClasses {
 public:
  static constexpr unsigned kClasses = 640;  // sizes up to 2^23 units

  // `unit` is a power of two.
  explicit SizeClasses(std::uint64_t unit) : unit_bits_(static_cast<unsigned>(std::countr_zero(unit))) {}

  // The smallest class that holds `bytes` (not 0); kClasses or more if there is none.
  unsigned class_of(std::uint64_t bytes) const {
    const std::uint64_t last = (bytes - 1) >> unit_bits_;  // unit of the last byte
    const auto width = static_cast<unsigned>(std::bit_width(last));
    const unsigned shift = width > kExactBits ? width - kExactBits : 0;
    return shift * kSteps + static_cast<unsigned>(last >> shift) + 1;
  }
  std::uint64_t bytes_of(unsigned size_class) const {
    const unsigned shift = size_class > 2 * kSteps ? (size_class - kSteps - 1) / kSteps : 0;
    return std::uint64_t{size_class - shift * kSteps} << shift << unit_bits_;
  }
  // The size of the largest class that fits into `bytes`.
  std::uint64_t whole_class(std::uint64_t bytes) const {
    if (bytes == 0) {
      return 0;
    }
    const unsigned size_class = class_of(bytes);
    return bytes_of(size_class) <= bytes ? bytes_of(size_class) : bytes_of(size_class - 1);
  }

 private:
  static constexpr unsigned kExactBits = 6;
  static constexpr unsigned kSteps = 1U << (kExactBits - 1);

  unsigned unit_bits_;
};

}  // namespace vdnn
