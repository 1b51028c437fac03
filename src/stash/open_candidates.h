#pragma once
// Finds, among the candidates that a plan may still choose, one that is away at an event. The candidates are
// the leaves of a segment tree, in their order. Each node stores the earliest begin and the latest end of its
// candidates. Absences of a training step are nested around the end of its forward pass, so one candidate of
// a node, the outermost, has both. Therefore the search rarely enters a node without a match. If a candidate
// comes back between two stretches, the search skips it at events where it is present.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "src/stash/absences.h"

namespace vdnn::stash {

// Not synchronised. The candidates must outlive this object. At first all candidates are open.
class OpenCandidates {
 public:
  explicit OpenCandidates(const std::vector<Absence>& candidates)
      : candidates_(candidates),
        leaves_(std::bit_ceil(std::max<std::size_t>(candidates.size(), 1))),
        parts_(2 * leaves_) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      parts_[leaves_ + i] = part_of(candidates[i]);
    }
    for (std::size_t node = leaves_; node-- > 1;) {
      parts_[node] = both(node);
    }
  }

  void close(std::size_t index) { set(index, {}); }
  void open(std::size_t index) { set(index, part_of(candidates_[index])); }

  // first_at() and last_at() return the first and the last open candidate in [from, to) that is away at the
  // event; absent if there is none.
  std::optional<std::size_t> first_at(std::size_t event, std::size_t from, std::size_t to) const {
    return find<true>({.event = event, .from = from, .to = to}, 1, 0, leaves_);
  }
  std::optional<std::size_t> last_at(std::size_t event, std::size_t from, std::size_t to) const {
    return find<false>({.event = event, .from = from, .to = to}, 1, 0, leaves_);
  }
  // See RangeMax::visits().
  std::uint64_t visits() const { return visits_; }

 private:
  struct Part {
    std::size_t begin = std::numeric_limits<std::size_t>::max();
    std::size_t end = 0;
  };
  struct Search {
    std::size_t event;
    std::size_t from;
    std::size_t to;
  };

  static Part part_of(const Absence& absence) {
    return {.begin = absence.stretches.front().begin, .end = absence.stretches.back().end};
  }
  Part both(std::size_t node) const {
    const Part& left = parts_[2 * node];
    const Part& right = parts_[2 * node + 1];
    return {.begin = std::min(left.begin, right.begin), .end = std::max(left.end, right.end)};
  }
  void set(std::size_t index, const Part& part) {
    std::size_t node = leaves_ + index;
    parts_[node] = part;
    for (node /= 2; node > 0; node /= 2) {
      parts_[node] = both(node);
      ++visits_;
    }
  }
  template <bool kFirst>
  std::optional<std::size_t> find(const Search& search, std::size_t node, std::size_t begin,
                                  std::size_t end) const {
    ++visits_;
    const Part& part = parts_[node];
    if (end <= search.from || search.to <= begin || search.event < part.begin || part.end <= search.event) {
      return std::nullopt;
    }
    if (node >= leaves_) {
      return candidates_[begin].is_away_at(search.event) ? std::optional(begin) : std::nullopt;
    }
    const std::size_t middle = (begin + end) / 2;
    const auto in_left = [&] { return find<kFirst>(search, 2 * node, begin, middle); };
    const auto in_right = [&] { return find<kFirst>(search, 2 * node + 1, middle, end); };
    if constexpr (kFirst) {
      const auto found = in_left();
      return found ? found : in_right();
    } else {
      const auto found = in_right();
      return found ? found : in_left();
    }
  }

  const std::vector<Absence>& candidates_;
  std::size_t leaves_;  // a power of two
  std::vector<Part> parts_;
  mutable std::uint64_t visits_ = 0;
};

}  // namespace vdnn::stash
