#pragma once
// An array of numbers with two operations on ranges in logarithmic time: add a value to all numbers, and find
// the largest number. The array is a segment tree whose additions are not pushed down.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace vdnn::stash {

// Not synchronised. Sums must stay within 63 bits.
class RangeMax {
 public:
  explicit RangeMax(const std::vector<std::int64_t>& values)
      : leaves_(std::bit_ceil(std::max<std::size_t>(values.size(), 1))), nodes_(2 * leaves_) {
    for (std::size_t i = 0; i < leaves_; ++i) {
      nodes_[leaves_ + i].largest = i < values.size() ? values[i] : kNone;
    }
    for (std::size_t node = leaves_; node-- > 1;) {
      nodes_[node].largest = std::max(nodes_[2 * node].largest, nodes_[2 * node + 1].largest);
    }
  }

  // Adds `value` to all numbers in [begin, end).
  void add(std::size_t begin, std::size_t end, std::int64_t value) {
    if (begin < end) {
      add({.node = 1, .begin = 0, .end = leaves_}, begin, end, value);
    }
  }
  // The largest number in [begin, end), which must not be empty.
  std::int64_t largest(std::size_t begin, std::size_t end) const {
    return largest({.node = 1, .begin = 0, .end = leaves_}, begin, end);
  }
  std::int64_t largest() const { return nodes_[1].largest; }
  std::int64_t at(std::size_t index) const {
    std::int64_t value = 0;
    for (std::size_t node = leaves_ + index; node > 0; node /= 2) {
      value += node >= leaves_ ? nodes_[node].largest : nodes_[node].added;
      ++visits_;
    }
    return value;
  }
  // The first index with the largest number.
  std::size_t first_of_largest() const {
    std::size_t node = 1;
    while (node < leaves_) {
      node = 2 * node + (nodes_[2 * node].largest >= nodes_[2 * node + 1].largest ? 0 : 1);
      ++visits_;
    }
    return node - leaves_;
  }
  // The number of nodes that all calls have visited: a measure of cost that is the same in each run.
  std::uint64_t visits() const { return visits_; }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min() / 2;

  struct Node {
    std::int64_t largest = kNone;  // the largest number below the node, without `added` of the nodes above it
    std::int64_t added = 0;        // the sum of additions to all numbers below; `largest` includes it
  };
  struct Part {
    std::size_t node;
    std::size_t begin;
    std::size_t end;

    std::size_t middle() const { return (begin + end) / 2; }
    Part left() const { return {.node = 2 * node, .begin = begin, .end = middle()}; }
    Part right() const { return {.node = 2 * node + 1, .begin = middle(), .end = end}; }
  };

  void add(const Part& part, std::size_t begin, std::size_t end, std::int64_t value) {
    ++visits_;
    Node& node = nodes_[part.node];
    if (begin <= part.begin && part.end <= end) {
      node.largest += value;
      node.added += value;
      return;
    }
    if (begin < part.middle()) {
      add(part.left(), begin, end, value);
    }
    if (part.middle() < end) {
      add(part.right(), begin, end, value);
    }
    node.largest = node.added + std::max(nodes_[2 * part.node].largest, nodes_[2 * part.node + 1].largest);
  }

  std::int64_t largest(const Part& part, std::size_t begin, std::size_t end) const {
    ++visits_;
    const Node& node = nodes_[part.node];
    if (begin <= part.begin && part.end <= end) {
      return node.largest;
    }
    std::int64_t found = kNone;
    if (begin < part.middle()) {
      found = std::max(found, largest(part.left(), begin, end));
    }
    if (part.middle() < end) {
      found = std::max(found, largest(part.right(), begin, end));
    }
    return found + node.added;
  }

  std::size_t leaves_;  // a power of two
  std::vector<Node> nodes_;
  mutable std::uint64_t visits_ = 0;
};

}  // namespace vdnn::stash
