#include "src/plan/optimal/segment_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace vdnn::optimal {
namespace {

std::optional<std::size_t> last_above(const std::vector<std::int64_t>& values, std::size_t begin,
                                      std::size_t end, std::int64_t bound) {
  for (std::size_t each = end; each > begin; --each) {
    if (values[each - 1] > bound) {
      return each - 1;
    }
  }
  return std::nullopt;
}

// Compares trees of lengths around powers of two with a plain array, for every range.
TEST(SegmentTree, AnswersAsAPlainRow) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  const auto number = [&] { return static_cast<std::int64_t>(random() % 41) - 20; };
  for (std::size_t count = 1; count <= 33; ++count) {
    std::vector<std::int64_t> values(count);
    std::ranges::generate(values, number);
    SegmentTree tree;
    tree.assign(values);
    for (int round = 0; round < 20; ++round) {
      const std::size_t from = below(count);
      const std::size_t to = from + below(count - from + 1);
      const std::int64_t by = number();
      tree.raise(from, to, by);
      for (std::size_t each = from; each < to; ++each) {
        values[each] += by;
      }
      ASSERT_EQ(tree.greatest(), *std::ranges::max_element(values)) << count << ", round " << round;
      for (std::size_t begin = 0; begin < count; ++begin) {
        for (std::size_t end = begin + 1; end <= count; ++end) {
          const auto greatest = *std::max_element(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                                  values.begin() + static_cast<std::ptrdiff_t>(end));
          ASSERT_EQ(tree.greatest(begin, end), greatest) << count << ": " << begin << " to " << end;
          ASSERT_EQ(tree.last_above(begin, end, by), last_above(values, begin, end, by))
              << count << ": " << begin << " to " << end << " above " << by;
        }
      }
    }
  }
}

}  // namespace
}  // namespace vdnn::optimal
