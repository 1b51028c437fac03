#pragma once
// Numbers in a row; ranges are raised as a whole, and asked for their greatest. Cost: O(log n) each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vdnn::optimal {

class SegmentTree {
 public:
  void assign(std::span<const std::int64_t> values) {
    size_ = 1;
    while (size_ < values.size()) {
      size_ *= 2;
    }
    greatest_.assign(2 * size_, kLeast);
    raised_.assign(size_, 0);
    std::ranges::copy(values, greatest_.begin() + static_cast<std::ptrdiff_t>(size_));
    for (std::size_t node = size_; --node > 0;) {
      greatest_[node] = std::max(greatest_[2 * node], greatest_[2 * node + 1]);
    }
  }

  // Of [begin, end).
  void raise(std::size_t begin, std::size_t end, std::int64_t by) {
    if (begin < end) {
      raise(1, 0, size_, begin, end, by);
    }
  }
  std::int64_t greatest(std::size_t begin, std::size_t end) const {
    return begin < end ? greatest(1, 0, size_, begin, end) : kLeast;
  }
  std::int64_t greatest() const { return greatest_[1]; }

  // The last position in [begin, end) with a number greater than `bound`.
  std::optional<std::size_t> last_above(std::size_t begin, std::size_t end, std::int64_t bound) const {
    return begin < end ? last_above(1, 0, size_, begin, end, bound) : std::nullopt;
  }

 private:
  static constexpr std::int64_t kLeast = INT64_MIN / 4;

  void raise(std::size_t node, std::size_t from, std::size_t to, std::size_t begin, std::size_t end,
             std::int64_t by) {
    if (begin <= from && to <= end) {
      greatest_[node] += by;
      if (node < size_) {
        raised_[node] += by;
      }
      return;
    }
    const std::size_t middle = (from + to) / 2;
    if (begin < middle) {
      raise(2 * node, from, middle, begin, end, by);
    }
    if (end > middle) {
      raise(2 * node + 1, middle, to, begin, end, by);
    }
    greatest_[node] = std::max(greatest_[2 * node], greatest_[2 * node + 1]) + raised_[node];
  }

  std::int64_t greatest(std::size_t node, std::size_t from, std::size_t to, std::size_t begin,
                        std::size_t end) const {
    if (begin <= from && to <= end) {
      return greatest_[node];
    }
    const std::size_t middle = (from + to) / 2;
    std::int64_t result = kLeast;
    if (begin < middle) {
      result = greatest(2 * node, from, middle, begin, end);
    }
    if (end > middle) {
      result = std::max(result, greatest(2 * node + 1, middle, to, begin, end));
    }
    return result + raised_[node];
  }

  std::optional<std::size_t> last_above(std::size_t node, std::size_t from, std::size_t to, std::size_t begin,
                                        std::size_t end, std::int64_t bound) const {
    if (end <= from || to <= begin || greatest_[node] <= bound) {
      return std::nullopt;
    }
    if (to - from == 1) {
      return from;
    }
    const std::size_t middle = (from + to) / 2;
    const std::int64_t below = bound - raised_[node];
    const auto right = last_above(2 * node + 1, middle, to, begin, end, below);
    return right ? right : last_above(2 * node, from, middle, begin, end, below);
  }

  std::size_t size_ = 0;
  std::vector<std::int64_t> greatest_;
  std::vector<std::int64_t> raised_;  // an inner node: of all below it
};

}  // namespace vdnn::optimal
