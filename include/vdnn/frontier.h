#pragma once
// Timelines and frontiers: the one notion of order in this project.
//
// Every stream counts its submissions: the n-th piece of work on stream s ends at the *point* (s, n). A
// *frontier* is a set of points, at most one per stream: a vector clock. A frontier F *dominates* a point (s,
// n) if its count on s is at least n: work that is ordered after F is also ordered after that point.
//
// Three things are the same arithmetic: waiting for another stream (its frontier is joined into the
// waiter's), reusing memory (a free block carries the frontier of its last users; a requester whose frontier
// dominates it may write at once), and checking for races (two accesses conflict unless the frontier of one
// dominates the point of the other).
//
// The form is Mattern's vector time (1989). Cost: linear in the number of streams involved, which is a
// handful. Up to kInlinePoints streams need no memory from the heap.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vdnn {

using StreamId = std::uint32_t;

// The end of the `count`-th submission of `stream`; counts begin at 1. Count 0 is reached from the start.
struct Point {
  StreamId stream = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Point&, const Point&) = default;
};

// A value type; not synchronised.
class Frontier {
 public:
  static constexpr std::size_t kInlinePoints = 6;

  Frontier() = default;
  Frontier(const Frontier&) = default;
  Frontier(Frontier&&) noexcept = default;
  // Assigns all points, or none if there is no memory for them.
  Frontier& operator=(const Frontier& other);
  Frontier& operator=(Frontier&&) noexcept = default;
  ~Frontier() = default;
  explicit Frontier(Point point) { join(point); }

  // The count of this frontier's point on `stream`; 0 if it has no point there.
  std::uint64_t count(StreamId stream) const;

  // Afterwards this frontier dominates the argument and everything that it dominated earlier.
  void join(Point point);
  void join(const Frontier& other);
  // Afterwards, a join whose result has at most `points` points allocates nothing.
  void reserve(std::size_t points);

  bool dominates(Point point) const { return count(point.stream) >= point.count; }
  bool dominates(const Frontier& other) const;

  bool empty() const { return size_ == 0; }
  void clear();

  // The points in ascending order of stream; none has count 0.
  std::span<const Point> points() const;

  friend bool operator==(const Frontier& a, const Frontier& b);

 private:
  std::span<Point> mutable_points();
  void insert(std::size_t position, Point point);

  // The points lie in `inline_` until there are more than fit, then all of them in `spilled_`.
  std::array<Point, kInlinePoints> inline_{};
  std::vector<Point> spilled_;
  std::size_t size_ = 0;
};

}  // namespace vdnn
