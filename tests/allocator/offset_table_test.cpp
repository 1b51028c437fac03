#include "allocator/offset_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace vdnn::offset_table_test {
namespace {

TEST(OffsetTable, IsEmptyAtFirst) {
  const OffsetTable table;
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.find(0), std::nullopt);
}

// Alternates between full and almost empty, so that runs of neighbours form and vanish, including runs that
// wrap around.
TEST(OffsetTable, IsAMap) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    OffsetTable table;
    std::map<std::uint64_t, OffsetTable::Index> model;
    for (OffsetTable::Index step = 0; step < 4000; ++step) {
      const std::uint64_t offset = 256 * (random() % 300);
      const bool shrinks = step / 500 % 2 == 1;
      ASSERT_EQ(table.find(offset).has_value(), model.contains(offset)) << "seed " << seed;
      if (!model.contains(offset) && random() % 100 < (shrinks ? 20U : 80U)) {
        table.reserve(model.size() + 1);
        table.insert(offset, step);
        model[offset] = step;
      } else if (model.contains(offset) && random() % 100 < (shrinks ? 80U : 20U)) {
        table.erase(offset);
        model.erase(offset);
      }
      ASSERT_EQ(table.size(), model.size());
      if (step % 50 == 0) {
        for (const auto& [key, index] : model) {
          ASSERT_EQ(table.find(key), index) << "seed " << seed << ", step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace vdnn::offset_table_test
