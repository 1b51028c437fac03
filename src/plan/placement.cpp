#include "src/plan/placement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>

#include "vdnn/size.h"

namespace vdnn {

namespace {

// One part in so many above what is alive is not worth a search.
constexpr std::uint64_t kNearEnough = 500;
// A search places everything at most so many times, and looks at no more than so many neighbours.
constexpr std::size_t kMostRounds = 60;
constexpr std::size_t kMostVisits = 1'000'000;
constexpr std::uint64_t kNoGoal = ~std::uint64_t{0};
constexpr double kPush = 0.3;  // of all positions, by which what lies too high goes to the front

// Beyond so many pairs of buffers that live at the same time, first fit takes too long.
constexpr std::uint64_t kMostPairs = 4'000'000;

std::uint64_t count_pairs(std::span<const Lifetime> all) {
  std::uint64_t pairs = 0;
  std::vector<std::pair<std::uint32_t, int>> events;
  for (const Lifetime& each : all) {
    events.emplace_back(each.soft_begin, 1);
    events.emplace_back(each.soft_end, -1);
  }
  std::ranges::sort(events);
  std::uint64_t alive = 0;
  for (const auto& [when, change] : events) {
    pairs += change > 0 ? alive : 0;
    alive += static_cast<std::uint64_t>(change);
  }
  return pairs;
}

std::vector<std::uint32_t> in_order_of_allocation(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

// When most is alive, and how much that is.
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

// Does it come after one that would better leave its place to the next step, and stay too long for that?
bool is_in_the_way(const Lifetime& other, const Lifetime& one) {
  return one.next_begin != kNone && other.soft_end > one.next_begin && other.soft_begin >= one.soft_end;
}

class FirstFit {
 public:
  FirstFit(std::span<const Lifetime> all, std::uint64_t alignment) : all_(all), neighbours_(all.size()) {
    for (const Lifetime& each : all) {
      sizes_.push_back(round_up(each.bytes, alignment));
    }
    // Not in order of allocation: who may come early meets those that are gone when it must be there.
    std::vector<std::uint32_t> order = in_order_of_allocation(all.size());
    std::ranges::stable_sort(order, {}, [&](std::uint32_t me) { return all[me].soft_begin; });
    std::vector<std::uint32_t> alive;
    for (const std::uint32_t me : order) {
      std::erase_if(alive, [&](std::uint32_t other) { return all_[other].soft_end <= all_[me].soft_begin; });
      for (const std::uint32_t other : alive) {
        meet(me, other);
      }
      alive.push_back(me);
    }
    for (std::uint32_t me = 0; me < all.size(); ++me) {
      for (std::uint32_t other = 0; all[me].next_begin != kNone && other < all.size(); ++other) {
        if (other != me && is_in_the_way(all[other], all[me])) {
          meet(me, other);
        }
      }
    }
  }

  // In that order, each at the lowest offset where nothing that lives at the same time lies: nothing that
  // may, where that is inside the goal, else nothing that must.
  Placement place(std::span<const std::uint32_t> order, std::uint64_t goal) {
    Placement placement{.offsets = std::vector<std::uint64_t>(all_.size(), kUnplaced), .bytes = 0};
    for (const std::uint32_t me : order) {
      std::uint64_t offset = lowest_offset<true>(me, placement.offsets);
      if (offset + sizes_[me] > goal) {
        offset = lowest_offset<false>(me, placement.offsets);
      }
      placement.offsets[me] = offset;
      placement.bytes = std::max(placement.bytes, offset + sizes_[me]);
    }
    return placement;
  }

  std::uint64_t size(std::uint32_t me) const { return sizes_[me]; }
  // Neighbours that are looked at when all are placed.
  std::size_t visits() const {
    std::size_t sum = 0;
    for (const auto& each : neighbours_) {
      sum += each.size() + 1;
    }
    return sum;
  }

 private:
  static constexpr std::uint64_t kUnplaced = ~std::uint64_t{0};

  void meet(std::uint32_t me, std::uint32_t other) {
    neighbours_[me].push_back(other);
    neighbours_[other].push_back(me);
  }
  bool must_meet(std::uint32_t me, std::uint32_t other) const {
    return all_[me].begin < all_[other].end && all_[other].begin < all_[me].end;
  }

  template <bool soft>
  std::uint64_t lowest_offset(std::uint32_t me, const std::vector<std::uint64_t>& offsets) {
    taken_.clear();
    for (const std::uint32_t other : neighbours_[me]) {
      if (offsets[other] != kUnplaced && (soft || must_meet(me, other))) {
        taken_.emplace_back(offsets[other], offsets[other] + sizes_[other]);
      }
    }
    std::ranges::sort(taken_);
    std::uint64_t offset = 0;
    for (const auto& [begin, end] : taken_) {
      if (begin >= offset + sizes_[me]) {
        break;
      }
      offset = std::max(offset, end);
    }
    return offset;
  }

  std::span<const Lifetime> all_;
  std::vector<std::vector<std::uint32_t>> neighbours_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken_;
};

std::uint32_t length(const Lifetime& lifetime) {
  return lifetime.end - lifetime.begin;
}

// How far it lies from a moment.
std::uint32_t distance(const Lifetime& lifetime, std::uint32_t when) {
  if (lifetime.begin > when) {
    return lifetime.begin - when;
  }
  return lifetime.end > when ? 0 : when - lifetime.end + 1;
}

// Squeaky wheel optimization (Joslin and Clements 1999): what came to lie above the goal goes further to the
// front of the order, a bit more or less by chance, and all are placed again.
void improve(FirstFit& fit, std::vector<std::uint32_t> order, std::uint64_t goal, std::size_t rounds,
             Placement& best) {
  const auto count = static_cast<double>(order.size());
  std::vector<double> rank(order.size());
  for (std::size_t position = 0; position < order.size(); ++position) {
    rank[order[position]] = static_cast<double>(position);
  }
  std::minstd_rand random(1);
  Placement current = fit.place(order, goal);
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

Placement place_by_first_fit(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t goal) {
  const Crowd crowd = fullest_moment(all, alignment);
  goal = std::max(goal, crowd.bytes + crowd.bytes / kNearEnough);
  std::vector<std::uint32_t> by_length = in_order_of_allocation(all.size());
  std::ranges::stable_sort(by_length, std::ranges::greater(),
                           [&](std::uint32_t me) { return length(all[me]); });
  std::vector<std::uint32_t> by_distance = by_length;
  std::ranges::stable_sort(by_distance, {}, [&](std::uint32_t me) { return distance(all[me], crowd.when); });
  std::vector<std::uint32_t> by_size = by_length;
  std::ranges::stable_sort(by_size, std::ranges::greater(), [&](std::uint32_t me) { return all[me].bytes; });
  FirstFit fit(all, alignment);
  const std::array orders{&by_length, &by_size, &by_distance};
  Placement best;
  for (const auto* order : orders) {
    Placement other = fit.place(*order, goal);
    if (best.offsets.empty() || other.bytes < best.bytes) {
      best = std::move(other);
    }
    if (best.bytes <= goal) {
      return best;
    }
  }
  const std::size_t rounds = kMostRounds * kMostVisits / (kMostVisits + kMostRounds * fit.visits());
  for (const auto* order : orders) {
    improve(fit, *order, goal, rounds, best);
  }
  return best;
}

// The highest offset in use at each moment, for ranges of moments.
class Skyline {
 public:
  explicit Skyline(std::uint32_t moments) : size_(1) {
    while (size_ < moments) {
      size_ *= 2;
    }
    nodes_.resize(std::size_t{2} * size_);
  }

  std::uint64_t highest(std::uint32_t begin, std::uint32_t end) const {
    return highest(1, 0, size_, begin, end);
  }
  // At least so high from now on.
  void raise(std::uint32_t begin, std::uint32_t end, std::uint64_t height) {
    raise(1, 0, size_, begin, end, height);
  }

 private:
  struct Node {
    std::uint64_t highest = 0;  // of the range, by what was raised in parts of it
    std::uint64_t whole = 0;    // what the whole range was raised to
  };

  std::uint64_t highest(std::size_t node, std::uint32_t from, std::uint32_t to, std::uint32_t begin,
                        std::uint32_t end) const {
    if (end <= from || to <= begin) {
      return 0;
    }
    if (begin <= from && to <= end) {
      return nodes_[node].highest;
    }
    const std::uint32_t middle = from + (to - from) / 2;
    return std::max({nodes_[node].whole, highest(2 * node, from, middle, begin, end),
                     highest(2 * node + 1, middle, to, begin, end)});
  }

  void raise(std::size_t node, std::uint32_t from, std::uint32_t to, std::uint32_t begin, std::uint32_t end,
             std::uint64_t height) {
    if (end <= from || to <= begin) {
      return;
    }
    nodes_[node].highest = std::max(nodes_[node].highest, height);
    if (begin <= from && to <= end) {
      nodes_[node].whole = std::max(nodes_[node].whole, height);
      return;
    }
    const std::uint32_t middle = from + (to - from) / 2;
    raise(2 * node, from, middle, begin, end, height);
    raise(2 * node + 1, middle, to, begin, end, height);
  }

  std::uint32_t size_;
  std::vector<Node> nodes_;
};

// In that order, each on top of all that has been placed at its time: no hole is filled, but the time is
// O(n log n).
Placement stack(std::span<const Lifetime> all, std::span<const std::uint32_t> order,
                std::uint64_t alignment) {
  std::uint32_t moments = 1;
  for (const Lifetime& each : all) {
    moments = std::max(moments, each.soft_end);
  }
  Skyline skyline(moments);
  Placement placement{.offsets = std::vector<std::uint64_t>(all.size()), .bytes = 0};
  for (const std::uint32_t me : order) {
    placement.offsets[me] = skyline.highest(all[me].soft_begin, all[me].soft_end);
    const std::uint64_t top = placement.offsets[me] + round_up(all[me].bytes, alignment);
    skyline.raise(all[me].soft_begin, all[me].soft_end, top);
    placement.bytes = std::max(placement.bytes, top);
  }
  return placement;
}

// Those that live longest first, and no longer than they must.
Placement stack_by_length(std::span<const Lifetime> all, std::uint64_t alignment) {
  std::vector<std::uint32_t> order = in_order_of_allocation(all.size());
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::uint32_t me) { return length(all[me]); });
  std::vector<Lifetime> shortest(all.begin(), all.end());
  for (Lifetime& each : shortest) {
    each.soft_begin = each.begin;
    each.soft_end = each.end;
  }
  return stack(shortest, order, alignment);
}

// Where the buffers lie.
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

// Whose place others have taken before the next step has no claim to it any more.
std::vector<Lifetime> without_lost_places(std::span<const Lifetime> all,
                                          std::span<const std::uint64_t> offsets, std::uint64_t alignment) {
  const Places places(all, offsets, alignment);
  std::vector<Lifetime> result(all.begin(), all.end());
  for (std::uint32_t me = 0; me < all.size(); ++me) {
    for (std::uint32_t other = 0; all[me].next_begin != kNone && other < all.size(); ++other) {
      if (other != me && is_in_the_way(all[other], all[me]) && places.overlap(me, other)) {
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

Placement find_placement(std::span<const Lifetime> all, std::uint64_t alignment, std::uint64_t goal) {
  return count_pairs(all) > kMostPairs ? stack_by_length(all, alignment)
                                       : place_by_first_fit(all, alignment, goal);
}

void settle(std::vector<Lifetime>& all, const Placement& placement, std::uint64_t alignment) {
  std::vector<std::uint32_t> order = in_order_of_allocation(all.size());
  std::ranges::stable_sort(order, {}, [&](std::uint32_t me) { return all[me].soft_begin; });
  const Places places(all, placement.offsets, alignment);
  std::vector<std::uint32_t> alive;
  for (const std::uint32_t me : order) {
    std::erase_if(alive, [&](std::uint32_t other) { return all[other].soft_end <= all[me].soft_begin; });
    for (const std::uint32_t other : alive) {
      if (!places.overlap(me, other) || all[other].soft_end <= all[me].soft_begin) {
        continue;
      }
      // The one that was there first stays no longer than it must, or the other comes no earlier.
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
  std::vector<std::uint32_t> order = in_order_of_allocation(all.size());
  std::ranges::stable_sort(order, {}, [&](std::uint32_t me) { return offsets[me]; });
  if (count_pairs(all) > kMostPairs) {
    return stack(all, order, alignment);
  }
  const std::vector<Lifetime> claims = without_lost_places(all, offsets, alignment);
  return FirstFit(claims, alignment).place(order, kNoGoal);
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
