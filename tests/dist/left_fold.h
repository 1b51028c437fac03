#pragma once
// The values that ranks contribute in tests, and the expected sums, exact to the bit.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace vdnn::testing {

// Values of such different magnitudes that every order of addition gives other bits.
inline std::vector<float> brought(std::uint64_t seed, int rank, std::size_t count) {
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(rank));
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return std::ldexp(mantissa(random), exponent(random)); });
  return values;
}

// Returns ((first + second) + third) + ... over the values of these ranks.
inline std::vector<float> fold(std::uint64_t seed, const std::vector<int>& ranks, std::size_t count) {
  std::vector<float> sum = brought(seed, ranks.front(), count);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    std::ranges::transform(sum, brought(seed, ranks[i], count), sum.begin(), std::plus<>());
  }
  return sum;
}

// Folds in rank order.
inline std::vector<float> left_fold(std::uint64_t seed, int ranks, std::size_t count) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return fold(seed, order, count);
}

inline std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> all(values.size());
  std::ranges::transform(values, all.begin(), [](float each) { return std::bit_cast<std::uint32_t>(each); });
  return all;
}

}  // namespace vdnn::testing
