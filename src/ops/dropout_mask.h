#pragma once
// The mask of dropout. It is a function of (seed, step, sample, key, element), so it is the same on every
// device, in both passes and for every split of a batch. Elements of a sample are counted in memory order,
// channels last.
//
// The generator is splitmix64 (Steele, Lea, Flood, OOPSLA 2014), which is counter-based by construction: draw
// i of a sequence is mix64(start + (i + 1) gamma). It passes BigCrush. The start is a hash of all arguments
// except the element. Two starts, uniform in 64 bits, lead to overlapping sequences of n draws with a
// probability of n / 2^63. A draw gives two elements 32 bits each. So the probability of an overlap is 2^-40
// for samples of 2^24 elements, and a dropout probability is exact to within 2^-32.

#include <cstdint>

#include "src/base/random.h"
#include "vdnn/op_catalog.h"
#include "vdnn/op_operands.h"

namespace vdnn::ops {

class DropoutMask {
 public:
  // The mask of one sample of the step. Samples are counted over all devices.
  constexpr DropoutMask(const DropoutSpec& spec, const StepScalars& scalars, std::uint64_t sample)
      : start_(mix(mix(mix(mix64(scalars.seed), scalars.step), sample), spec.key)),
        threshold_(threshold(spec)) {}

  // The decisions for elements 2 pair and 2 pair + 1.
  struct Kept {
    bool first = false;
    bool second = false;
  };
  constexpr Kept kept(std::uint64_t pair) const {
    const std::uint64_t bits = mix64(start_ + (pair + 1) * kGamma);
    return {.first = static_cast<std::uint32_t>(bits) >= threshold_, .second = (bits >> 32) >= threshold_};
  }

 private:
  static constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15;

  static constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t next) {
    return mix64((hash + kGamma) ^ next);
  }
  // Less than 2^32, since the largest probability below 1 is 1 - 2^-24.
  static constexpr std::uint32_t threshold(const DropoutSpec& spec) {
    return static_cast<std::uint32_t>(static_cast<double>(spec.probability) * 0x1p32);
  }

  std::uint64_t start_;
  std::uint32_t threshold_;
};

}  // namespace vdnn::ops
