#pragma once
// Random numbers that are the same everywhere: the standard's distributions differ between libraries, and a
// seed has to select the same batches on every machine. The generator is splitmix64 (Steele, Lea, Flood,
// OOPSLA 2014); a value type.

#include <bit>
#include <cstdint>

namespace vdnn {

// The finaliser of splitmix64: a bijection in which each bit of the argument affects each bit of the result.
// Also used as a hash.
constexpr std::uint64_t mix64(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    return mix64(state_);
  }

  // Uniform in [0, bound), bound > 0. Uses rejection, since a remainder would favour small numbers.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(bound | 1);
    std::uint64_t draw = 0;
    do {
      draw = next() & mask;
    } while (draw >= bound);
    return draw;
  }

  // Uniform multiples of 2^-23 in [-1, 1): exact in fp32, so that neither rounding nor a compiler's fused
  // multiply-add differs between machines.
  float symmetric() {
    constexpr float kUnit = 0x1p-23F;
    return static_cast<float>(next() >> 40) * kUnit - 1.0F;
  }

 private:
  std::uint64_t state_;
};

// The seed of sequence number `key` among those that belong to `seed`.
inline std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t key) {
  return SplitMix64(SplitMix64(seed).next() ^ key).next();
}

}  // namespace vdnn
