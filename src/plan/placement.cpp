#include "src/plan/placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "vdnn/size.h"

namespace vdnn {

namespace {

// No better placement is searched for if the arena exceeds the most bytes alive by at most 1 / kNearEnough.
constexpr std::uint64_t kNearEnough = 500;
// A search places all buffers at most kMostRounds times per order, and examines about kMostVisits neighbours.
constexpr std::size_t kMostRounds = 400;
constexpr std::size_t kMostVisits = 4'000'000;
constexpr int kLessRoom = 2;  // attempts with a smaller part for small buffers
// The search that places small and large buffers together may make 1 / kTogether of the visits.
constexpr std::size_t kTogether = 10;
// If more pairs of buffers are alive at once, or if there are more buffers, first fit is not used. Its tables
// have one bit per pair of buffers.
constexpr std::size_t kTooManyPairs = 4'000'000;
constexpr std::size_t kTooManyBuffers = 16'384;
// A buffer's neighbours are sorted by themselves only if the list that contains them (Periods) has more than
// this many buffers for each neighbour. Otherwise the whole list is used.
constexpr std::size_t kFewNeighbours = 16;
constexpr std::uint64_t kEndless = ~std::uint64_t{0};
constexpr double kPush = 0.3;  // a buffer that is too high moves forward by this fraction of the order

using Order = std::vector<std::uint32_t>;

Order in_order_of_allocation(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

// The most bytes that are alive at once, and when.
struct Crowd {
  std::uint64_t bytes = 0;
  std::uint32_t when = 0;
};

Crowd fullest_moment(std::span<const Lifetime> all, std::uint64_t alignment) {
  std::vector<std::uint32_t> by_begin = in_order_of_allocation(all.size());
  std::vector<std::uint32_t> by_end = by_begin;
  std::ranges::sort(by_begin, {}, [&](std::uint32_t me) { return all[me].begin; });
  std::ranges::sort(by_end, {}, [&](std::uint32_t me) { return all[me].end; });
  std::uint64_t live = 0;
  Crowd fullest;
  auto ended = by_end.begin();
  for (const std::uint32_t me : by_begin) {
    for (; ended != by_end.end() && all[*ended].end <= all[me].begin; ++ended) {
      live -= round_up(all[*ended].bytes, alignment);
    }
    live += round_up(all[me].bytes, alignment);
    if (live > fullest.bytes) {
      fullest = {.bytes = live, .when = all[me].begin};
    }
  }
  return fullest;
}

bool must_meet(const Lifetime& one, const Lifetime& other) {
  return one.begin < other.end && other.begin < one.end;
}

std::vector<std::uint32_t> by_soft_begin(std::span<const Lifetime> all) {
  std::vector<std::uint32_t> order = in_order_of_allocation(all.size());
  std::ranges::stable_sort(order, {}, [&](std::uint32_t me) { return all[me].soft_begin; });
  return order;
}

// One row of bits per buffer: the buffers that it must not overlap.
class Conflicts {
 public:
  explicit Conflicts(std::size_t count)
      : words_in_row_((count + kBits - 1) / kBits), words_(count * words_in_row_) {}

  void add(std::uint32_t one, std::uint32_t other) {
    set(one, other);
    set(other, one);
  }

  class Row {
   public:
    explicit Row(std::span<const std::uint64_t> words) : words_(words) {}
    // All bits set if `other` is in the row, otherwise none, for arithmetic without a branch.
    std::uint64_t mask(std::uint32_t other) const {
      return 0 - ((words_[other / kBits] >> (other % kBits)) & 1U);
    }
    // Calls `visit(other)` for each buffer of the row.
    template <class Visit>
    void visit(const Visit& visit) const {
      for (std::uint32_t word = 0; word < words_.size(); ++word) {
        for (std::uint64_t left = words_[word]; left != 0; left &= left - 1) {
          visit(static_cast<std::uint32_t>(word * kBits) +
                static_cast<std::uint32_t>(std::countr_zero(left)));
        }
      }
    }

   private:
    std::span<const std::uint64_t> words_;
  };
  Row row(std::uint32_t me) const {
    return Row(std::span(words_).subspan(me * words_in_row_, words_in_row_));
  }

 private:
  static constexpr std::size_t kBits = 64;

  void set(std::uint32_t me, std::uint32_t other) {
    words_[me * words_in_row_ + other / kBits] |= std::uint64_t{1} << (other % kBits);
  }

  std::size_t words_in_row_;
  std::vector<std::uint64_t> words_;
};

// The *neighbours* of each buffer. These are the buffers that may be alive at the same time. They also
// include the buffers that are alive while the buffer's place should stay free for the next step.
class Neighbours {
 public:
  explicit Neighbours(std::span<const Lifetime> all)
      : may_meet_(all.size()), must_meet_(all.size()), counts_(all.size(), 0) {
    std::vector<std::uint32_t> alive;
    for (const std::uint32_t me : by_soft_begin(all)) {
      std::erase_if(alive, [&](std::uint32_t other) { return all[other].soft_end <= all[me].soft_begin; });
      for (const std::uint32_t other : alive) {
        add(me, other);
        if (must_meet(all[me], all[other])) {
          must_meet_.add(me, other);
        }
      }
      alive.push_back(me);
    }
    for (std::uint32_t me = 0; me < all.size(); ++me) {
      for (std::uint32_t other = 0; all[me].next_begin != kNone && other < all.size(); ++other) {
        if (other != me && all[other].soft_end > all[me].next_begin) {
          add(me, other);
          if (all[me].next_is_firm && all[other].end > all[me].next_begin) {
            must_meet_.add(me, other);
          }
        }
      }
    }
  }

  std::size_t count(std::uint32_t me) const { return counts_[me]; }
  std::size_t pairs() const { return pairs_; }
  Conflicts::Row all(std::uint32_t me) const { return may_meet_.row(me); }
  // The neighbours that remain if no buffer has a longer, optional life and only firm places stay free.
  Conflicts::Row unavoidable(std::uint32_t me) const { return must_meet_.row(me); }

 private:
  void add(std::uint32_t one, std::uint32_t other) {
    may_meet_.add(one, other);
    ++counts_[one];
    ++counts_[other];
    ++pairs_;
  }

  Conflicts may_meet_;
  Conflicts must_meet_;
  std::vector<std::uint32_t> counts_;  // the number of neighbours; a pair that is added twice counts twice
  std::size_t pairs_ = 0;
};

// Where a buffer is placed.
struct Box {
  std::uint64_t begin = kEndless;  // kEndless if the buffer is not placed
  std::uint64_t end = kEndless;
};

// The placed buffers in order of offset: one list per period of the step, and one list of all. If memory is
// scarce, most buffers live within one period, and their neighbours are in that period's list. Insertion
// takes most of the time. Three measures keep it fast. A buffer is a 16-bit number. Its position in a
// period's list is found by counting 32-bit offsets. And the list of all is updated only when it is read.
class Periods {
 public:
  using Who = std::uint16_t;
  static_assert(kTooManyBuffers <= std::size_t{1} << 16U);

  // `boxes` must outlive this object. No buffer may end beyond `most` bytes.
  Periods(std::span<const Lifetime> all, const std::vector<Box>& boxes, std::uint64_t most)
      : boxes_(boxes),
        count_(all.size()),
        shift_(std::max(static_cast<int>(std::bit_width(most)), kOffsetBits) - kOffsetBits) {
    std::vector<std::uint32_t> begins;
    for (const Lifetime& each : all) {
      begins.push_back(each.soft_begin);
    }
    std::ranges::sort(begins);
    // Periods are chosen such that the same number of buffers begins in each of them.
    const auto period = [&begins](std::uint32_t when) {
      const auto begun = std::ranges::upper_bound(begins, when) - begins.begin();
      return static_cast<std::size_t>(begun) * kPeriods / (begins.size() + 1);
    };
    for (const Lifetime& each : all) {
      // If the place of a buffer should stay free for the next step, the buffer meets all buffers that are
      // alive until the end of the step.
      const std::size_t last =
          each.next_begin != kNone ? kPeriods - 1 : period(std::max(each.soft_begin, each.soft_end - 1));
      spans_.push_back({.first = period(each.soft_begin), .last = last});
    }
    placed_.resize(kPeriods * count_);
    offsets_.resize(kPeriods * count_);
    all_placed_.reserve(count_);
    to_merge_.reserve(count_);
  }

  void clear() {
    sizes_.fill(0);
    all_placed_.clear();
    to_merge_.clear();
  }
  void add(std::uint32_t me) {
    to_merge_.push_back(static_cast<Who>(me));
    for (std::size_t period = spans_[me].first; period <= spans_[me].last; ++period) {
      insert(me, period);
    }
  }
  // A superset of the placed neighbours of `me`, in order of offset.
  std::span<const Who> around(std::uint32_t me) {
    if (const std::size_t period = spans_[me].first; period == spans_[me].last) {
      return std::span(placed_).subspan(period * count_, sizes_[period]);
    }
    merge();
    return all_placed_;
  }

 private:
  struct Span {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  static constexpr std::size_t kPeriods = 16;
  static constexpr int kOffsetBits = 31;

  std::uint64_t offset(Who who) const { return boxes_[who].begin; }

  void insert(std::uint32_t me, std::size_t period) {
    Who* const placed = &placed_[period * count_];
    std::int32_t* const offsets = &offsets_[period * count_];
    const auto mine = static_cast<std::int32_t>(boxes_[me].begin >> shift_);
    const std::size_t size = sizes_[period]++;
    std::int32_t before = 0;
    for (std::size_t each = 0; each < size; ++each) {
      before += offsets[each] <= mine ? 1 : 0;
    }
    auto place = static_cast<std::size_t>(before);
    while (place > 0 && offset(placed[place - 1]) > boxes_[me].begin) {
      --place;
    }
    std::copy_backward(placed + place, placed + size, placed + size + 1);
    std::copy_backward(offsets + place, offsets + size, offsets + size + 1);
    placed[place] = static_cast<Who>(me);
    offsets[place] = mine;
  }

  // Merges to_merge_ into all_placed_, from the back, so that no entry moves twice.
  void merge() {
    const auto by_offset = [this](Who who) { return offset(who); };
    std::ranges::sort(to_merge_, {}, by_offset);
    std::size_t left = all_placed_.size();
    all_placed_.resize(left + to_merge_.size());
    for (std::size_t added = to_merge_.size(); added > 0; --added) {
      const Who who = to_merge_[added - 1];
      const auto begin = all_placed_.begin();
      const auto end = begin + static_cast<std::ptrdiff_t>(left);
      const auto place = std::ranges::upper_bound(begin, end, offset(who), {}, by_offset);
      std::copy_backward(place, end, end + static_cast<std::ptrdiff_t>(added));
      left = static_cast<std::size_t>(place - begin);
      all_placed_[left + added - 1] = who;
    }
    to_merge_.clear();
  }

  const std::vector<Box>& boxes_;
  std::size_t count_;
  int shift_;                                  // reduces an offset to kOffsetBits
  std::vector<Span> spans_;                    // by buffer
  std::vector<Who> placed_;                    // space for all buffers in each period's list
  std::vector<std::int32_t> offsets_;          // the offsets of placed_
  std::array<std::size_t, kPeriods> sizes_{};  // by period: how many buffers are placed
  std::vector<Who> all_placed_;                // all placed buffers except those in to_merge_
  std::vector<Who> to_merge_;
};

class FirstFit {
 public:
  FirstFit(std::span<const Lifetime> all, std::uint64_t alignment)
      : neighbours_(all),
        sizes_(rounded_sizes(all, alignment)),
        boxes_(all.size()),
        periods_(all, boxes_, std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0})),
        beside_(all.size()) {}
  FirstFit(const FirstFit&) = delete;
  FirstFit& operator=(const FirstFit&) = delete;

  // Places the buffers in the given order, each at the lowest offset at which it overlaps no neighbour. If a
  // buffer would exceed the goal, only the neighbours in unavoidable() count for it.
  Placement place(std::span<const std::uint32_t> order, std::uint64_t goal) {
    std::ranges::fill(boxes_, Box{});
    periods_.clear();
    std::uint64_t reach = 0;
    for (const std::uint32_t me : order) {
      const std::span<const Periods::Who> others = boxes_in_order(me);
      std::uint64_t begin = lowest_offset(sizes_[me], others, neighbours_.all(me));
      if (begin + sizes_[me] > goal) {
        begin = lowest_offset(sizes_[me], others, neighbours_.unavoidable(me));
      }
      boxes_[me] = {.begin = begin, .end = begin + sizes_[me]};
      periods_.add(me);
      reach = std::max(reach, boxes_[me].end);
    }
    Placement result{.offsets = std::vector<std::uint64_t>(sizes_.size()), .bytes = reach};
    std::ranges::transform(boxes_, result.offsets.begin(), &Box::begin);
    return result;
  }

  std::uint64_t size(std::uint32_t me) const { return sizes_[me]; }
  // The number of neighbours that are examined when all buffers are placed once.
  std::size_t visits() const { return 2 * neighbours_.pairs() + sizes_.size(); }

 private:
  static std::vector<std::uint64_t> rounded_sizes(std::span<const Lifetime> all, std::uint64_t alignment) {
    std::vector<std::uint64_t> sizes;
    for (const Lifetime& each : all) {
      sizes.push_back(round_up(each.bytes, alignment));
    }
    return sizes;
  }

  // All placed neighbours of `me`, in order of offset. If they are few, they are sorted. Otherwise the result
  // is Periods::around(), which may include other buffers.
  std::span<const Periods::Who> boxes_in_order(std::uint32_t me) {
    const std::span<const Periods::Who> around = periods_.around(me);
    if (neighbours_.count(me) * kFewNeighbours >= around.size()) {
      return around;
    }
    std::size_t count = 0;
    neighbours_.all(me).visit([&](std::uint32_t other) {
      beside_[count] = static_cast<Periods::Who>(other);
      count += boxes_[other].begin != kEndless ? 1 : 0;  // without a branch, which could not be predicted
    });
    const std::span<Periods::Who> beside = std::span(beside_).first(count);
    std::ranges::sort(beside, {}, [this](Periods::Who who) { return boxes_[who].begin; });
    return beside;
  }

  // The lowest offset of a hole of `size` bytes between conflicting buffers. `others` are in order of offset,
  // so the first hole that is large enough is the lowest.
  std::uint64_t lowest_offset(std::uint64_t size, std::span<const Periods::Who> others,
                              const Conflicts::Row& conflicts) const {
    std::uint64_t offset = 0;
    for (const Periods::Who other : others) {
      const std::uint64_t mask = conflicts.mask(other);
      if ((boxes_[other].begin & mask) >= offset + size) {
        break;
      }
      offset = std::max(offset, boxes_[other].end & mask);
    }
    return offset;
  }

  Neighbours neighbours_;
  std::vector<std::uint64_t> sizes_;
  std::vector<Box> boxes_;  // by buffer
  Periods periods_;
  std::vector<Periods::Who> beside_;  // storage of boxes_in_order()
};

std::uint32_t length(const Lifetime& lifetime) {
  return lifetime.end - lifetime.begin;
}

// The number of instructions between the life and `when`; 0 if the buffer is alive then.
std::uint32_t distance(const Lifetime& lifetime, std::uint32_t when) {
  if (lifetime.begin > when) {
    return lifetime.begin - when;
  }
  return lifetime.end > when ? 0 : when - lifetime.end + 1;
}

// Squeaky wheel optimization (Joslin and Clements 1999): buffers above the goal move towards the front of the
// order, by a partly random distance, and all buffers are placed again. This is repeated at most `rounds`
// times. `current` is the placement of `order`.
void improve(FirstFit& fit, Order order, Placement current, std::uint64_t goal, std::size_t rounds,
             Placement& best) {
  const auto count = static_cast<double>(order.size());
  std::vector<double> rank(order.size());
  for (std::size_t position = 0; position < order.size(); ++position) {
    rank[order[position]] = static_cast<double>(position);
  }
  std::minstd_rand random(1);
  for (std::size_t round = 0; round < rounds && best.bytes > goal; ++round) {
    for (std::uint32_t me = 0; me < rank.size(); ++me) {
      if (current.offsets[me] + fit.size(me) > goal) {
        rank[me] -= kPush * count * (0.5 + static_cast<double>(random()) / static_cast<double>(random.max()));
      }
    }
    std::ranges::stable_sort(order, {}, [&](std::uint32_t me) { return rank[me]; });
    current = fit.place(order, goal);
    if (current.bytes < best.bytes) {
      best = current;
    }
  }
}

// Places the buffers in order of time, like an allocator that knows how long each buffer will live. Buffers
// with long lives fill memory from the bottom. A buffer with a short life is placed as high as possible below
// a ceiling, so that it leaves no hole among buffers with long lives. Takes O(n log n) if holes are few.
class Sweep {
 public:
  Sweep(std::span<const Lifetime> all, std::uint64_t alignment)
      : all_(all), alignment_(alignment), by_begin_(in_order_of_allocation(all.size())), by_end_(by_begin_) {
    std::ranges::stable_sort(by_begin_, {}, [&](std::uint32_t me) { return all_[me].begin; });
    std::ranges::stable_sort(by_end_, {}, [&](std::uint32_t me) { return all_[me].end; });
  }

  Placement place(std::uint32_t long_life, std::uint64_t ceiling) {
    holes_.clear();
    holes_.emplace(0, kEndless);
    Placement placement{.offsets = std::vector<std::uint64_t>(all_.size()), .bytes = 0};
    auto ended = by_end_.begin();
    for (const std::uint32_t me : by_begin_) {
      for (; all_[*ended].end <= all_[me].begin; ++ended) {
        give_back(placement.offsets[*ended], size(*ended));
      }
      const std::optional<std::uint64_t> high =
          length(all_[me]) < long_life ? highest_offset(size(me), ceiling) : std::nullopt;
      placement.offsets[me] = high.value_or(lowest_offset(size(me)));
      take(placement.offsets[me], size(me));
      placement.bytes = std::max(placement.bytes, placement.offsets[me] + size(me));
    }
    return placement;
  }

 private:
  std::uint64_t size(std::uint32_t me) const { return round_up(all_[me].bytes, alignment_); }

  // The lowest offset of a hole with `bytes`. There is one, since the last hole has no end.
  std::uint64_t lowest_offset(std::uint64_t bytes) const {
    auto hole = holes_.begin();
    while (hole->second - hole->first < bytes) {
      ++hole;
    }
    return hole->first;
  }
  std::optional<std::uint64_t> highest_offset(std::uint64_t bytes, std::uint64_t ceiling) const {
    for (auto hole = holes_.rbegin(); hole != holes_.rend(); ++hole) {
      const std::uint64_t end = std::min(hole->second, ceiling);
      if (end >= hole->first && end - hole->first >= bytes) {
        return end - bytes;
      }
    }
    return std::nullopt;
  }

  void take(std::uint64_t offset, std::uint64_t bytes) {
    const auto hole = std::prev(holes_.upper_bound(offset));
    const auto [begin, end] = *hole;
    holes_.erase(hole);
    if (begin < offset) {
      holes_.emplace(begin, offset);
    }
    if (offset + bytes < end) {
      holes_.emplace(offset + bytes, end);
    }
  }
  void give_back(std::uint64_t offset, std::uint64_t bytes) {
    std::uint64_t end = offset + bytes;
    auto next = holes_.lower_bound(offset);
    if (next != holes_.begin() && std::prev(next)->second == offset) {
      --next;
      offset = next->first;
      next = holes_.erase(next);
    }
    if (next != holes_.end() && next->first == end) {
      end = next->second;
      holes_.erase(next);
    }
    if (offset < end) {
      holes_.emplace(offset, end);
    }
  }

  std::span<const Lifetime> all_;
  std::uint64_t alignment_;
  std::vector<std::uint32_t> by_begin_;
  std::vector<std::uint32_t> by_end_;
  std::map<std::uint64_t, std::uint64_t> holes_;  // by begin: the hole's end
};

// The best placement of several sweeps. The sweeps differ in two parameters. One is the fraction of the step
// from which on a life counts as long. The other is the distance between the ceiling and the most bytes
// alive.
Placement place_by_sweeps(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t goal) {
  std::uint32_t moments = 0;
  for (const Lifetime& each : all) {
    moments = std::max(moments, each.end);
  }
  const std::uint64_t live = fullest_moment(all, alignment).bytes;
  Sweep sweep(all, alignment);
  Placement best = sweep.place(0, 0);
  for (const std::uint32_t parts : {256U, 32U, 4U}) {
    if (moments < parts) {
      continue;
    }
    for (const std::uint64_t share : {kNearEnough, std::uint64_t{64}, std::uint64_t{16}}) {
      if (best.bytes <= std::max(goal, live)) {
        return best;
      }
      Placement other = sweep.place(moments / parts, round_up(live + live / share, alignment));
      if (other.bytes < best.bytes) {
        best = std::move(other);
      }
    }
  }
  return best;
}

// Three orders: buffers with the longest lives first, the largest buffers first, and buffers closest in time
// to the fullest moment first.
std::array<Order, 3> orders_of(std::span<const Lifetime> all, std::uint32_t fullest) {
  Order by_length = in_order_of_allocation(all.size());
  std::ranges::stable_sort(by_length, std::ranges::greater(),
                           [&](std::uint32_t me) { return length(all[me]); });
  Order by_distance = by_length;
  std::ranges::stable_sort(by_distance, {}, [&](std::uint32_t me) { return distance(all[me], fullest); });
  Order by_size = by_length;
  std::ranges::stable_sort(by_size, std::ranges::greater(), [&](std::uint32_t me) { return all[me].bytes; });
  return {std::move(by_length), std::move(by_size), std::move(by_distance)};
}

// The best placement that first fit finds. `visits`: the number of neighbours that the search may examine.
Placement search(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t goal,
                 std::size_t visits) {
  std::array<Order, 3> orders = orders_of(all, fullest_moment(all, alignment).when);
  FirstFit fit(all, alignment);
  std::vector<Placement> placements;
  std::size_t best_order = 0;
  for (const Order& order : orders) {
    placements.push_back(fit.place(order, goal));
    if (placements.back().bytes < placements[best_order].bytes) {
      best_order = placements.size() - 1;
    }
    if (placements.back().bytes <= goal) {
      return placements.back();
    }
  }
  Placement best = placements[best_order];
  const std::size_t rounds =
      std::min(kMostRounds, visits / std::max<std::size_t>(fit.visits() * orders.size(), 1));
  for (std::size_t each = 0; each < orders.size() && rounds > 0; ++each) {
    improve(fit, std::move(orders[each]), std::move(placements[each]), goal, rounds, best);
  }
  return best;
}

// The lifetimes of all buffers, divided into small and large buffers. Most buffers are small and need little
// memory, but a large buffer must not overlap any small buffer that is alive. In a part of their own, small
// buffers leave no holes among large ones. The search for the large part then has few buffers to place.
struct Parts {
  std::vector<std::uint32_t> who_small;
  std::vector<std::uint32_t> who_large;
  std::vector<Lifetime> small;
  std::vector<Lifetime> large;
};

Parts part(std::span<const Lifetime> all, std::span<const std::uint32_t> by_size, std::size_t small) {
  Parts parts{.who_small = {by_size.begin(), by_size.begin() + static_cast<std::ptrdiff_t>(small)},
              .who_large = {by_size.begin() + static_cast<std::ptrdiff_t>(small), by_size.end()},
              .small = {},
              .large = {}};
  std::ranges::sort(parts.who_small);
  std::ranges::sort(parts.who_large);
  const auto at = [all](std::uint32_t me) { return all[me]; };
  std::ranges::transform(parts.who_small, std::back_inserter(parts.small), at);
  std::ranges::transform(parts.who_large, std::back_inserter(parts.large), at);
  return parts;
}

// Divides lifetimes. The small part has as many of the smallest buffers as fit into `room` bytes, counted as
// the most bytes that are alive at once.
Parts part(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t room) {
  Order by_size = in_order_of_allocation(all.size());
  std::ranges::stable_sort(by_size, {}, [&](std::uint32_t me) { return all[me].bytes; });
  std::size_t fits = 0;
  for (std::size_t above = all.size(); fits < above;) {
    const std::size_t small = fits + (above - fits + 1) / 2;
    if (fullest_moment(part(all, by_size, small).small, alignment).bytes <= room) {
      fits = small;
    } else {
      above = small - 1;
    }
  }
  return part(all, by_size, fits);
}

// Places the small buffers, for which `room` bytes are intended, below the large ones.
Placement place_apart(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t room,
                      std::uint64_t goal) {
  const Parts parts = part(all, alignment, room);
  const Placement below = search(parts.small, alignment, room, kMostVisits);
  const Placement above = search(parts.large, alignment, goal - std::min(goal, below.bytes), kMostVisits);
  Placement both{.offsets = std::vector<std::uint64_t>(all.size()), .bytes = below.bytes + above.bytes};
  for (std::size_t each = 0; each < parts.small.size(); ++each) {
    both.offsets[parts.who_small[each]] = below.offsets[each];
  }
  for (std::size_t each = 0; each < parts.large.size(); ++each) {
    both.offsets[parts.who_large[each]] = below.bytes + above.offsets[each];
  }
  return both;
}

// The lifetimes, and one more for each place that stays free until the end of the step.
std::vector<Lifetime> with_firm_places(std::span<const Lifetime> all) {
  std::vector<Lifetime> result(all.begin(), all.end());
  std::uint32_t end = 0;
  for (const Lifetime& each : all) {
    end = std::max(end, each.end);
  }
  for (const Lifetime& each : all) {
    if (each.next_is_firm && each.next_begin < end) {
      result.push_back({.bytes = each.bytes, .begin = each.next_begin, .end = end});
    }
  }
  return result;
}

Placement place_by_first_fit(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t goal) {
  const Crowd crowd = fullest_moment(with_firm_places(all), alignment);
  const std::uint64_t enough = goal >= crowd.bytes ? goal : crowd.bytes + crowd.bytes / kNearEnough;
  Placement best = search(all, alignment, enough, kMostVisits / kTogether);
  const auto take = [&best](Placement other) {
    if (other.bytes < best.bytes) {
      best = std::move(other);
    }
  };
  if (best.bytes > enough && std::ranges::none_of(all, &Lifetime::next_is_firm)) {
    take(place_by_sweeps(all, alignment, enough));
  }
  std::uint64_t room = crowd.bytes / kNearEnough + (enough - std::min(enough, crowd.bytes)) / 2;
  if (best.bytes > enough) {
    take(place_apart(all, alignment, room, enough));
  }
  // If few bytes are missing, a smaller part may suffice for the small buffers.
  for (int less = 0; less < kLessRoom && best.bytes > enough && best.bytes - enough <= room; ++less) {
    room /= 4;
    take(place_apart(all, alignment, room, enough));
  }
  return best;
}

// The bytes of the arena that buffers occupy.
class Places {
 public:
  Places(std::span<const Lifetime> all, std::span<const std::uint64_t> offsets, std::uint64_t alignment)
      : offsets_(offsets) {
    for (std::size_t each = 0; each < all.size(); ++each) {
      ends_.push_back(offsets[each] + round_up(all[each].bytes, alignment));
    }
  }
  bool overlap(std::uint32_t me, std::uint32_t other) const {
    return offsets_[me] < ends_[other] && offsets_[other] < ends_[me];
  }

 private:
  std::span<const std::uint64_t> offsets_;
  std::vector<std::uint64_t> ends_;
};

// Clears next_begin of lifetimes whose places other buffers occupy before the next step.
std::vector<Lifetime> without_lost_places(std::span<const Lifetime> all,
                                          std::span<const std::uint64_t> offsets, std::uint64_t alignment) {
  const Places places(all, offsets, alignment);
  std::vector<Lifetime> result(all.begin(), all.end());
  for (std::uint32_t me = 0; me < all.size(); ++me) {
    for (std::uint32_t other = 0; all[me].next_begin != kNone && other < all.size(); ++other) {
      if (other != me && all[other].soft_end > all[me].next_begin && places.overlap(me, other)) {
        result[me].next_begin = kNone;
      }
    }
  }
  return result;
}

}  // namespace

std::vector<Lifetime> lifetimes(const Schedule& schedule) {
  std::vector<Lifetime> result;
  std::vector<std::uint32_t> index(schedule.buffers.size(), kNone);
  const auto count = static_cast<std::uint32_t>(schedule.instructions.size());
  for (std::uint32_t when = 0; when < count; ++when) {
    const Instruction& instruction = schedule.instructions[when];
    if (instruction.kind == InstructionKind::kAllocate &&
        schedule.buffers[instruction.buffer].space == Space::kDevice) {
      index[instruction.buffer] = static_cast<std::uint32_t>(result.size());
      result.push_back({.buffer = instruction.buffer,
                        .bytes = schedule.buffers[instruction.buffer].bytes,
                        .begin = when,
                        .end = count,
                        .soft_begin = when,
                        .soft_end = count});
    } else if (instruction.kind == InstructionKind::kRelease && index[instruction.buffer] != kNone) {
      result[index[instruction.buffer]].end = when;
      result[index[instruction.buffer]].soft_end = when;
    }
  }
  return result;
}

std::uint64_t most_live_bytes(std::span<const Lifetime> all, std::uint64_t alignment) {
  return fullest_moment(all, alignment).bytes;
}

bool places_in_order_of_time(std::span<const Lifetime> all) {
  if (all.size() > kTooManyBuffers) {
    return true;
  }
  std::vector<std::uint32_t> ends;
  std::size_t pairs = 0;
  for (const Lifetime& each : all) {
    ends.push_back(each.soft_end);
    pairs += each.next_begin == kNone ? 0 : all.size();
  }
  std::ranges::sort(ends);
  std::size_t ended = 0;
  std::size_t begun = 0;
  for (const std::uint32_t me : by_soft_begin(all)) {
    while (ends[ended] <= all[me].soft_begin) {
      ++ended;
    }
    pairs += begun++ - ended;
  }
  return pairs > kTooManyPairs;
}

Placement find_placement(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t goal) {
  return places_in_order_of_time(all) ? place_by_sweeps(all, alignment, goal)
                                      : place_by_first_fit(all, alignment, goal);
}

const Placement& Placements::find(std::span<const Lifetime> all, std::uint64_t alignment,
                                  std::uint64_t goal) {
  const auto same = std::ranges::find_if(known_, [&](const Known& each) {
    return each.goal == goal && each.alignment == alignment && std::ranges::equal(each.lifetimes, all);
  });
  if (same != known_.end()) {
    return same->placement;
  }
  if (known_.size() == kMostKnown) {
    known_.pop_front();
  }
  return known_
      .emplace_back(Known{.lifetimes = {all.begin(), all.end()},
                          .alignment = alignment,
                          .goal = goal,
                          .placement = find_placement(all, alignment, goal)})
      .placement;
}

void settle(std::vector<Lifetime>& all, const Placement& placement, std::uint64_t alignment) {
  const Places places(all, placement.offsets, alignment);
  std::vector<std::uint32_t> alive;
  for (const std::uint32_t me : by_soft_begin(all)) {
    std::erase_if(alive, [&](std::uint32_t other) { return all[other].soft_end <= all[me].soft_begin; });
    for (const std::uint32_t other : alive) {
      if (!places.overlap(me, other) || all[other].soft_end <= all[me].soft_begin) {
        continue;
      }
      // First shortens the soft life of the buffer that begins first. If the two buffers still meet, the
      // other buffer begins later.
      const bool other_first = all[other].begin < all[me].begin;
      Lifetime& first = all[other_first ? other : me];
      Lifetime& second = all[other_first ? me : other];
      first.soft_end = std::max(first.end, std::min(first.soft_end, second.begin));
      second.soft_begin = std::min(second.begin, std::max(second.soft_begin, first.soft_end));
    }
    alive.push_back(me);
  }
}

Placement pack(std::span<const Lifetime> all, std::span<const std::uint64_t> offsets,
               std::uint64_t alignment) {
  if (places_in_order_of_time(all)) {
    Placement as_it_was{.offsets = {offsets.begin(), offsets.end()}, .bytes = 0};
    for (std::size_t each = 0; each < all.size(); ++each) {
      as_it_was.bytes = std::max(as_it_was.bytes, offsets[each] + round_up(all[each].bytes, alignment));
    }
    return as_it_was;
  }
  std::vector<std::uint32_t> order = in_order_of_allocation(all.size());
  std::ranges::stable_sort(order, {}, [&](std::uint32_t me) { return offsets[me]; });
  const std::vector<Lifetime> claims = without_lost_places(all, offsets, alignment);
  return FirstFit(claims, alignment).place(order, kEndless);
}

void assign(Schedule& schedule, std::span<const Lifetime> all, const Placement& placement) {
  for (std::size_t each = 0; each < all.size(); ++each) {
    schedule.buffers[all[each].buffer].offset = placement.offsets[each];
  }
  schedule.arena_bytes = placement.bytes;
}

void place_buffers(Schedule& schedule, std::uint64_t alignment, std::uint64_t goal) {
  const std::vector<Lifetime> all = lifetimes(schedule);
  assign(schedule, all, find_placement(all, alignment, goal));
}

}  // namespace vdnn
