#pragma once
// Division by a number that is fixed at a kernel's launch, by a product and a shift (Granlund and Montgomery,
// PLDI 1994, figure 4.1 for dividends of 63 bits). On a GPU, a 64-bit division takes longer than the access
// to an element in memory.

#include <bit>
#include <cstdint>

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

class Divisor {
 public:
  Divisor() = default;
  // `divisor` must be in (0, 2^63).
  explicit Divisor(std::uint64_t divisor)
      : divisor_(divisor), shift_(static_cast<std::uint32_t>(std::bit_width(divisor - 1))) {
    const Wide power = Wide{1} << (63 + shift_);
    factor_ = static_cast<std::uint64_t>((power + divisor - 1) / divisor);
  }

  VDNN_HOST_DEVICE std::uint64_t value() const { return divisor_; }
  // `dividend` must be less than 2^63.
  VDNN_HOST_DEVICE std::uint64_t quotient(std::uint64_t dividend) const {
    return static_cast<std::uint64_t>((static_cast<Wide>(dividend << 1) * factor_) >> 64) >> shift_;
  }
  VDNN_HOST_DEVICE std::uint64_t remainder(std::uint64_t dividend) const {
    return dividend - quotient(dividend) * divisor_;
  }

 private:
  using Wide = unsigned __int128;

  std::uint64_t divisor_ = 1;
  std::uint64_t factor_ = std::uint64_t{1} << 63;
  std::uint32_t shift_ = 0;
};

}  // namespace vdnn::cuda
