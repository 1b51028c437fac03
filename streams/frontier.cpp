#include "vdnn/frontier.h"

#include <algorithm>

namespace vdnn {

Frontier& Frontier::operator=(const Frontier& other) {
  if (this != &other) {
    spilled_ = other.spilled_;  // the only part that may fail
    inline_ = other.inline_;
    size_ = other.size_;
  }
  return *this;
}

std::span<const Point> Frontier::points() const {
  return spilled_.empty() ? std::span<const Point>(inline_.data(), size_) : std::span<const Point>(spilled_);
}

std::span<Point> Frontier::mutable_points() {
  return spilled_.empty() ? std::span<Point>(inline_.data(), size_) : std::span<Point>(spilled_);
}

std::uint64_t Frontier::count(StreamId stream) const {
  for (const Point& point : points()) {
    if (point.stream == stream) {
      return point.count;
    }
  }
  return 0;
}

// `size_` counts the points that are inline, also after they have spilled: so that a frontier whose
// `spilled_` was moved away is still a valid one.
void Frontier::insert(std::size_t position, Point point) {
  if (spilled_.empty() && size_ < kInlinePoints) {
    std::move_backward(inline_.begin() + position, inline_.begin() + size_, inline_.begin() + size_ + 1);
    inline_[position] = point;
    ++size_;
  } else {
    if (spilled_.empty()) {
      spilled_.reserve(kInlinePoints + 1);
      spilled_.assign(inline_.begin(), inline_.end());
    }
    spilled_.insert(spilled_.begin() + static_cast<std::ptrdiff_t>(position), point);
  }
}

void Frontier::reserve(std::size_t points) {
  if (points > kInlinePoints) {
    spilled_.reserve(points);
  }
}

void Frontier::join(Point point) {
  if (point.count == 0) {
    return;
  }
  const std::span<Point> mine = mutable_points();
  std::size_t position = 0;
  while (position < mine.size() && mine[position].stream < point.stream) {
    ++position;
  }
  if (position < mine.size() && mine[position].stream == point.stream) {
    mine[position].count = std::max(mine[position].count, point.count);
  } else {
    insert(position, point);
  }
}

void Frontier::join(const Frontier& other) {
  if (this == &other) {
    return;
  }
  for (const Point& point : other.points()) {
    join(point);
  }
}

bool Frontier::dominates(const Frontier& other) const {
  return std::ranges::all_of(other.points(), [this](const Point& point) { return dominates(point); });
}

void Frontier::clear() {
  spilled_.clear();
  size_ = 0;
}

bool operator==(const Frontier& a, const Frontier& b) {
  return std::ranges::equal(a.points(), b.points());
}

}  // namespace vdnn
