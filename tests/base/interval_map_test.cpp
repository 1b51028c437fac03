// Compares the map with a model that stores the value of each byte.

#include "src/base/interval_map.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

namespace vdnn {
namespace {

constexpr std::uint64_t kBase = 1000;
constexpr std::uint64_t kBytes = 64;

using Model = std::vector<std::optional<int>>;

std::uint64_t draw(std::mt19937_64& random, std::uint64_t limit) {
  return random() % limit;
}

AddressRange random_range(std::mt19937_64& random) {
  const std::uint64_t begin = draw(random, kBytes);
  return {.begin = kBase + begin, .bytes = draw(random, kBytes - begin + 1)};
}

// Returns the value of each byte of `range` as visit() reports them. The pieces must be consecutive, not
// empty, and tile the range.
Model visited(const IntervalMap<int>& map, AddressRange range) {
  Model bytes;
  std::uint64_t at = range.begin;
  map.visit(range, [&](AddressRange piece, const int* value) {
    EXPECT_EQ(piece.begin, at);
    EXPECT_GT(piece.bytes, 0U);
    at = piece.end();
    bytes.insert(bytes.end(), piece.bytes, value == nullptr ? std::nullopt : std::optional<int>(*value));
  });
  EXPECT_EQ(at, range.end());
  return bytes;
}

Model slice(const Model& model, AddressRange range) {
  const auto begin = model.begin() + static_cast<std::ptrdiff_t>(range.begin - kBase);
  return {begin, begin + static_cast<std::ptrdiff_t>(range.bytes)};
}

void step(std::mt19937_64& random, IntervalMap<int>& map, Model& model) {
  const AddressRange range = random_range(random);
  const auto bytes_begin = model.begin() + static_cast<std::ptrdiff_t>(range.begin - kBase);
  const auto bytes_end = bytes_begin + static_cast<std::ptrdiff_t>(range.bytes);
  const int value = static_cast<int>(draw(random, 100));
  switch (draw(random, 3)) {
    case 0:
      map.assign(range, value);
      std::fill(bytes_begin, bytes_end, value);
      break;
    case 1:
      map.erase(range);
      std::fill(bytes_begin, bytes_end, std::nullopt);
      break;
    default:
      map.update(range, [&](AddressRange, int& old) { old += value; });
      std::for_each(bytes_begin, bytes_end,
                    [&](std::optional<int>& byte) { byte = byte.value_or(0) + value; });
  }
}

TEST(IntervalMap, AgreesWithAModelOfEachByte) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    IntervalMap<int> map;
    Model model(kBytes);
    for (int i = 0; i < 100; ++i) {
      step(random, map, model);
      const AddressRange range = random_range(random);
      ASSERT_EQ(visited(map, range), slice(model, range)) << "after " << i + 1 << " operations";
    }
  }
}

TEST(IntervalMap, UpdateGivesConsecutivePiecesOfTheRange) {
  IntervalMap<int> map;
  map.assign({.begin = 10, .bytes = 10}, 1);
  std::vector<AddressRange> pieces;
  map.update({.begin = 5, .bytes = 20}, [&](AddressRange piece, int&) { pieces.push_back(piece); });
  const std::vector<AddressRange> expected{
      {.begin = 5, .bytes = 5}, {.begin = 10, .bytes = 10}, {.begin = 20, .bytes = 5}};
  EXPECT_EQ(pieces, expected);
}

TEST(IntervalMap, AssigningAWholeForgetsItsPieces) {
  IntervalMap<int> map;
  for (std::uint64_t at = 0; at < 50; ++at) {
    map.assign({.begin = at, .bytes = 1}, static_cast<int>(at));
  }
  EXPECT_EQ(map.size(), 50U);
  map.assign({.begin = 0, .bytes = 50}, 7);
  EXPECT_EQ(map.size(), 1U);
}

}  // namespace
}  // namespace vdnn
