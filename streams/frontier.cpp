#include "vdnn/frontier.h"

#include <algorithm>
#include <utility>

namespace vdnn {

namespace {

// The position of `stream` in `points`, or where it would be inserted. For a few points, a linear search is
// faster than a binary one.
std::size_t position_of(std::span<const Point> points, StreamId stream) {
  if (points.size() > Frontier::kInlinePoints) {
    return static_cast<std::size_t>(std::ranges::lower_bound(points, stream, {}, &Point::stream) -
                                    points.begin());
  }
  std::size_t position = 0;
  while (position < points.size() && points[position].stream < stream) {
    ++position;
  }
  return position;
}

// The number of streams in `a` or `b`.
std::size_t size_of_union(std::span<const Point> a, std::span<const Point> b) {
  std::size_t size = a.size() + b.size();
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const auto [of_a, of_b] = std::pair(a[i].stream, b[j].stream);
    size -= of_a == of_b ? 1U : 0U;
    i += of_a <= of_b ? 1U : 0U;
    j += of_b <= of_a ? 1U : 0U;
  }
  return size;
}

// Merges `other` into the first `size` elements of `points`; the length of `points` is that of the union.
// Works from the end, so that no element is overwritten before it is read.
void merge_from_the_end(std::span<Point> points, std::size_t size, std::span<const Point> other) {
  std::size_t mine = size;
  std::size_t others = other.size();
  for (std::size_t to = points.size(); others > 0;) {
    --to;
    if (mine > 0 && points[mine - 1].stream > other[others - 1].stream) {
      points[to] = points[--mine];
    } else if (mine > 0 && points[mine - 1].stream == other[others - 1].stream) {
      --mine;
      --others;
      points[to] = {.stream = other[others].stream,
                    .count = std::max(points[mine].count, other[others].count)};
    } else {
      points[to] = other[--others];
    }
  }
}

}  // namespace

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
  const std::span<const Point> mine = points();
  const std::size_t position = position_of(mine, stream);
  return position < mine.size() && mine[position].stream == stream ? mine[position].count : 0;
}

// `size_` keeps the number of inline points after they have spilled, so that a frontier whose `spilled_` was
// moved away is still valid.
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
  const std::size_t position = position_of(mine, point.stream);
  if (position < mine.size() && mine[position].stream == point.stream) {
    mine[position].count = std::max(mine[position].count, point.count);
  } else {
    insert(position, point);
  }
}

void Frontier::join(const Frontier& other) {
  const std::span<const Point> theirs = other.points();
  if (this == &other || theirs.empty()) {
    return;
  }
  if (theirs.size() == 1) {
    join(theirs.front());
    return;
  }
  const std::size_t before = points().size();
  const std::size_t after = size_of_union(points(), theirs);
  if (spilled_.empty() && after <= kInlinePoints) {
    size_ = after;
    merge_from_the_end(mutable_points(), before, theirs);
    return;
  }
  if (spilled_.capacity() < after) {
    spilled_.reserve(std::max(after, 2 * spilled_.capacity()));
  }
  if (spilled_.empty()) {
    spilled_.assign(inline_.begin(), inline_.begin() + before);
  }
  spilled_.resize(after);
  merge_from_the_end(spilled_, before, theirs);
  std::copy_n(spilled_.begin(), kInlinePoints, inline_.begin());
  size_ = kInlinePoints;
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
