#pragma once
// The floating-point formats of two bytes, as bits: bf16 (8 bits of exponent, 7 of fraction) and fp16 (IEEE
// 754 binary16: 5 and 10). Conversions use integers and no branches, so that compilers vectorise loops over
// them on every processor. Their results are the same everywhere: rounded to the nearest value, ties to even,
// as in hardware. A number beyond the largest becomes an infinity, and a NaN stays a NaN.

#include <bit>
#include <cstdint>

namespace vdnn {

// `a` if the condition holds, else `b`, without a branch: a branch around arithmetic that could trap would
// keep the loop scalar.
inline std::uint32_t choose(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

// The formats as types, so that one loop can be written for all of them. `Bits` is the type of an element in
// memory.
struct Fp32 {
  using Bits = float;
  static float widen(float value) { return value; }
  static float narrow(float value) { return value; }
};

struct Bf16 {
  using Bits = std::uint16_t;

  static float widen(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); }

  static std::uint16_t narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t odd = (bits >> 16U) & 1U;
    const std::uint32_t rounded = (bits + 0x7fffU + odd) >> 16U;
    const std::uint32_t quiet_nan = (bits >> 16U) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
  }
};

struct Fp16 {
  using Bits = std::uint16_t;

  static float widen(std::uint16_t bits) {
    constexpr std::uint32_t kExponent = 0x7c00U << 13U;
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = (bits & 0x7fffU) << 13U;
    const std::uint32_t exponent = magnitude & kExponent;
    // Adds the difference of the exponents' biases, twice for infinities and NaN, whose exponent is all ones
    // in both formats.
    const std::uint32_t normal =
        magnitude + ((127U - 15U) << 23U) + choose(exponent == kExponent, (128U - 16U) << 23U, 0);
    // Subnormals have no leading one: take the fraction at exponent -14 and subtract that one.
    const float subnormal = std::bit_cast<float>(magnitude + (113U << 23U)) - 0x1p-14F;
    const std::uint32_t wide = choose(exponent == 0, std::bit_cast<std::uint32_t>(subnormal), normal);
    return std::bit_cast<float>(wide | sign);
  }

  static std::uint16_t narrow(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = all & 0x80000000U;
    const std::uint32_t bits = all ^ sign;
    // Rounding may carry into the exponent, up to that of an infinity.
    const std::uint32_t odd = (bits >> 13U) & 1U;
    const std::uint32_t normal = (bits - ((127U - 15U) << 23U) + 0xfffU + odd) >> 13U;
    // Near 0.5 the last bit of fp32's fraction is 2^-24, the smallest subnormal, so the sum rounds to a
    // multiple of it.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5F) - 0x3f000000U;
    const std::uint32_t infinite = choose(bits > 0x7f800000U, 0x7e00U, 0x7c00U);
    const std::uint32_t finite = choose(bits < 0x38800000U, subnormal, normal);  // 2^-14
    const std::uint32_t narrow = choose(bits >= 0x47800000U, infinite, finite);  // 2^16
    return static_cast<std::uint16_t>(narrow | (sign >> 16U));
  }
};

}  // namespace vdnn
