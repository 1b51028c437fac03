#include "src/base/narrow_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace vdnn {
namespace {

// The value that `bits` represent, by the definition of the format.
double value_of(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias - fraction_bits)
                       : sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

struct Bf16Format : Bf16 {
  static constexpr int kExponentBits = 8;
  static constexpr int kFractionBits = 7;
};
struct Fp16Format : Fp16 {
  static constexpr int kExponentBits = 5;
  static constexpr int kFractionBits = 10;
};

template <class Format>
class NarrowFloats : public ::testing::Test {
 protected:
  static double value(std::uint16_t bits) {
    return value_of(bits, Format::kExponentBits, Format::kFractionBits);
  }
  static constexpr std::uint16_t kInfinityBits = 0x7fff & ~((1 << Format::kFractionBits) - 1);
};
using Formats = ::testing::Types<Bf16Format, Fp16Format>;
TYPED_TEST_SUITE(NarrowFloats, Formats);

TYPED_TEST(NarrowFloats, EveryPatternIsWidenedToItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    const double expected = this->value(narrow);
    const float wide = TypeParam::widen(narrow);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(this->value(TypeParam::narrow(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(wide, expected) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(TypeParam::narrow(wide), narrow) << bits;
  }
}

// A value between two neighbours rounds to the nearer one, and a tie to the one whose last bit is 0. Rounding
// treats infinity as the next value that a larger exponent would allow.
TYPED_TEST(NarrowFloats, RoundsToTheNearestAndTiesToEven) {
  for (std::uint16_t below = 0; below < this->kInfinityBits; ++below) {
    const auto above = static_cast<std::uint16_t>(below + 1);
    const double low = this->value(below);
    const double high =
        above == this->kInfinityBits ? low + (low - this->value(below - 1)) : this->value(above);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2) << "fp32 represents the middle exactly, " << below;
    const std::uint16_t even = below % 2 == 0 ? below : above;
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(TypeParam::narrow(sign * middle), even | sign_bit) << below;
      ASSERT_EQ(TypeParam::narrow(sign * std::nextafter(middle, 0.0F)), below | sign_bit) << below;
      ASSERT_EQ(TypeParam::narrow(sign * std::nextafter(middle, std::numeric_limits<float>::infinity())),
                above | sign_bit)
          << below;
    }
  }
}

TYPED_TEST(NarrowFloats, BeyondTheLargestAreInfinitiesAndNanStays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float large : {std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(this->value(TypeParam::narrow(large)), kInfinity);
    EXPECT_EQ(this->value(TypeParam::narrow(-large)), -kInfinity);
  }
  // The fraction of this NaN has only bits that no narrow format keeps.
  const float nan = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(this->value(TypeParam::narrow(nan))));
  EXPECT_TRUE(std::isnan(this->value(TypeParam::narrow(-nan))));
}

}  // namespace
}  // namespace vdnn
