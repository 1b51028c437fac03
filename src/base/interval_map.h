#pragma once
// A map from byte addresses to values. It is constant on intervals, and records for example which memory is
// committed, which version a byte carries, or which work used it last. An operation that begins or ends
// inside an interval splits it. Only assign() merges intervals: it replaces all those in its range by one.
// Neighbours with equal values are not merged otherwise. That suffices for tensors, which are assigned
// as a whole.
//
// Cost: O(log n + k) for n intervals, k of them in the range.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "vdnn/address_range.h"

namespace vdnn {

template <class Value>
class IntervalMap {
 public:
  // Calls visitor(piece, value) for consecutive pieces that make up `range`; value is null for pieces without
  // a value.
  template <class Visitor>
  void visit(AddressRange range, Visitor&& visitor) const {
    std::uint64_t at = range.begin;
    for (auto it = first_after(at); at < range.end(); ++it) {
      const std::uint64_t gap_end = it == intervals_.end() ? range.end() : std::min(it->first, range.end());
      if (at < gap_end) {
        visitor(AddressRange{.begin = at, .bytes = gap_end - at}, static_cast<const Value*>(nullptr));
        at = gap_end;
      }
      if (at == range.end()) {
        return;
      }
      const std::uint64_t end = std::min(it->second.end, range.end());
      visitor(AddressRange{.begin = at, .bytes = end - at}, &it->second.value);
      at = end;
    }
  }

  // Calls change(piece, value) for consecutive pieces that make up `range`; pieces without a value start with
  // a default one.
  template <class Change>
  void update(AddressRange range, Change&& change) {
    if (range.bytes == 0) {
      return;
    }
    split(range.begin);
    split(range.end());
    std::uint64_t at = range.begin;
    for (auto it = intervals_.lower_bound(at); at < range.end(); ++it) {
      if (it == intervals_.end() || it->first > at) {
        const std::uint64_t end = it == intervals_.end() ? range.end() : std::min(it->first, range.end());
        it = intervals_.emplace_hint(it, at, Interval{.end = end, .value = {}});
      }
      change(AddressRange{.begin = at, .bytes = it->second.end - at}, it->second.value);
      at = it->second.end;
    }
  }

  void assign(AddressRange range, Value value) {
    if (range.bytes == 0) {
      return;
    }
    const auto next = clear(range);
    intervals_.emplace_hint(next, range.begin, Interval{.end = range.end(), .value = std::move(value)});
  }

  void erase(AddressRange range) {
    if (range.bytes != 0) {
      clear(range);
    }
  }

  std::size_t size() const { return intervals_.size(); }

 private:
  struct Interval {
    std::uint64_t end = 0;
    Value value{};
  };
  using Intervals = std::map<std::uint64_t, Interval>;

  // The first interval that ends after `at`.
  typename Intervals::const_iterator first_after(std::uint64_t at) const {
    auto it = intervals_.upper_bound(at);
    if (it != intervals_.begin() && std::prev(it)->second.end > at) {
      --it;
    }
    return it;
  }

  // Makes `at` a border of intervals.
  void split(std::uint64_t at) {
    auto it = intervals_.lower_bound(at);
    if (it == intervals_.begin()) {
      return;
    }
    Interval& before = std::prev(it)->second;
    if (before.end > at) {
      intervals_.emplace_hint(it, at, Interval{.end = before.end, .value = before.value});
      before.end = at;
    }
  }

  // Erases `range`; returns the interval that follows it.
  typename Intervals::iterator clear(AddressRange range) {
    split(range.begin);
    split(range.end());
    return intervals_.erase(intervals_.lower_bound(range.begin), intervals_.lower_bound(range.end()));
  }

  Intervals intervals_;  // by begin; disjoint, none empty
};

}  // namespace vdnn
