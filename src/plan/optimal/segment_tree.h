#pragma once
// A sequence of n numbers. Adding a number to a range and finding the greatest number of a range take O(log
// n).

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

  // Adds `by` to each number in [begin, end).
  void raise(std::size_t begin, std::size_t end, std::int64_t by) {
    if (begin >= end) {
      return;
    }
    // Raises the nodes that are completely in the range, from the bottom up. Then computes all nodes above
    // the two ends of the range anew.
    std::size_t left = begin + size_;
    std::size_t right = end + size_;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) {
        raise_node(left++, by);
      }
      if (right % 2 == 1) {
        raise_node(--right, by);
      }
    }
    look_again_above(begin + size_);
    look_again_above(end - 1 + size_);
  }
  // The greatest number in [begin, end).
  std::int64_t greatest(std::size_t begin, std::size_t end) const {
    if (begin >= end) {
      return kLeast;
    }
    std::size_t left = begin + size_;
    std::size_t right = end - 1 + size_;
    std::int64_t from_left = greatest_[left];
    std::int64_t from_right = greatest_[right];
    while (left / 2 != right / 2) {
      if (left % 2 == 0) {
        from_left = std::max(from_left, greatest_[left + 1]);
      }
      if (right % 2 == 1) {
        from_right = std::max(from_right, greatest_[right - 1]);
      }
      left /= 2;
      right /= 2;
      from_left += raised_[left];
      from_right += raised_[right];
    }
    std::int64_t result = std::max(from_left, from_right);
    for (left /= 2; left > 0; left /= 2) {
      result += raised_[left];
    }
    return result;
  }
  std::int64_t greatest() const { return greatest_[1]; }

  // The last position in [begin, end) with a number greater than `bound`.
  std::optional<std::size_t> last_above(std::size_t begin, std::size_t end, std::int64_t bound) const {
    return begin < end ? last_above(1, 0, size_, begin, end, bound) : std::nullopt;
  }

 private:
  static constexpr std::int64_t kLeast = INT64_MIN / 4;

  void raise_node(std::size_t node, std::int64_t by) {
    greatest_[node] += by;
    if (node < size_) {
      raised_[node] += by;
    }
  }
  void look_again_above(std::size_t node) {
    for (node /= 2; node > 0; node /= 2) {
      greatest_[node] = std::max(greatest_[2 * node], greatest_[2 * node + 1]) + raised_[node];
    }
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
  std::vector<std::int64_t> raised_;  // by inner node: the number to add to all numbers below the node
};

}  // namespace vdnn::optimal
