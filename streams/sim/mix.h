#pragma once
// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64-bit words in which each
// bit of the argument reaches each bit of the result.

#include <cstdint>

namespace vdnn {

constexpr std::uint64_t mix64(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace vdnn
