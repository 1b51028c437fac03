#include "allocator/tlsf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "allocator/stream_clock.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

void join_uncovered(Frontier& frontier, const Frontier& other, const CoveredPoints* covered) {
  if (covered == nullptr) {
    frontier.join(other);
    return;
  }
  for (const Point& point : other.points()) {
    if (!covered->contain(point)) {
      frontier.join(point);
    }
  }
}

}  // namespace

unsigned Tlsf::class_of(std::uint64_t bytes) const {
  const std::uint64_t units = bytes / unit_;
  if (units < kSecondLevel) {
    return static_cast<unsigned>(units);
  }
  const auto shift = static_cast<unsigned>(std::bit_width(units)) - 1 - kSecondLevelBits;
  const auto step = static_cast<unsigned>(units >> shift) - kSecondLevel;
  return (shift + 1) * kSecondLevel + step;
}

unsigned Tlsf::next_class(unsigned from) const {
  if (from >= kClasses) {
    return kClasses;
  }
  unsigned first = from / kSecondLevel;
  std::uint32_t steps = second_level_[first] & (~std::uint32_t{0} << (from % kSecondLevel));
  if (steps == 0) {
    const std::uint64_t larger = first_level_ & (~std::uint64_t{0} << (first + 1));
    if (larger == 0) {
      return kClasses;
    }
    first = static_cast<unsigned>(std::countr_zero(larger));
    steps = second_level_[first];
  }
  return first * kSecondLevel + static_cast<unsigned>(std::countr_zero(steps));
}

template <class Requester>
Tlsf::Index Tlsf::pick(unsigned size_class, std::uint64_t bytes, const Requester& requester,
                       std::size_t limit) const {
  Index first_fit = kNone;
  for (Index node = heads_[size_class]; node != kNone && limit > 0; node = nodes_[node].next, --limit) {
    if (nodes_[node].bytes < bytes) {
      continue;
    }
    if (requester.dominates(nodes_[node].frontier)) {
      return node;
    }
    if (first_fit == kNone) {
      first_fit = node;
    }
  }
  return first_fit;
}

template <class Requester>
Tlsf::Index Tlsf::find_hole(std::uint64_t bytes, const Requester& requester) const {
  const unsigned own = class_of(bytes);
  if (const Index node = pick(own, bytes, requester, kCandidates); node != kNone) {
    return node;
  }
  if (const unsigned larger = next_class(own + 1); larger < kClasses) {
    return pick(larger, bytes, requester, kCandidates);
  }
  return pick(own, bytes, requester, std::numeric_limits<std::size_t>::max());
}

std::optional<Tlsf::Block> Tlsf::allocate(std::uint64_t asked, const Frontier& requester) {
  return allocate<Frontier>(asked, requester);
}

template <class Requester>
std::optional<Tlsf::Block> Tlsf::allocate(std::uint64_t asked, const Requester& requester) {
  asked = std::max<std::uint64_t>(asked, 1);
  const std::uint64_t bytes = round_up(asked, unit_);
  Index node = find_hole(bytes, requester);
  if (node == kNone) {
    if (tail_bytes() < bytes) {
      return std::nullopt;
    }
    node = tail();
  }
  // Whatever may fail comes first.
  Block block{.offset = nodes_[node].offset, .bytes = bytes, .frontier = nodes_[node].frontier};
  Frontier behind = block.frontier;
  prepare_nodes(1);
  in_use_.reserve(in_use_.size() + 1);
  in_use_.insert(nodes_[node].offset, node);
  unlist(node);
  nodes_[node].state = State::kInUse;
  nodes_[node].asked = asked;
  if (nodes_[node].bytes > bytes) {
    split(node, bytes, std::move(behind));
  } else if (node == last_) {
    // Its last users are what memory that is appended now is behind, as a rest of it would have been.
    beyond_ = std::move(behind);
  }
  in_use_bytes_ += bytes;
  asked_bytes_ += asked;
  return block;
}

template std::optional<Tlsf::Block> Tlsf::allocate(std::uint64_t asked, const StreamKnowledge& requester);

std::uint64_t Tlsf::missing(std::uint64_t asked) const {
  const std::uint64_t bytes = round_up(std::max<std::uint64_t>(asked, 1), unit_);
  return bytes - std::min(bytes, tail_bytes());
}

void Tlsf::grow(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (tail_bytes() > 0) {
    nodes_[last_].bytes += bytes;
  } else {
    prepare_nodes(1);
    nodes_[append(last_, end_, bytes)].frontier = std::exchange(beyond_, {});
  }
  end_ += bytes;
}

void Tlsf::shrink(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (tail() != last_ || bytes > tail_bytes()) {
    throw InvalidArgument("a range whose last " + format_size(tail_bytes()) + " are free cannot lose " +
                          format_size(bytes));
  }
  Node& tail = nodes_[last_];
  tail.bytes -= bytes;
  end_ -= bytes;
  if (tail.bytes == 0) {
    // What is appended one day lies behind the same users.
    beyond_ = std::exchange(tail.frontier, {});
    const Index gone = std::exchange(last_, tail.before);
    if (last_ != kNone) {
      nodes_[last_].after = kNone;
    }
    make_spare(gone);
  }
}

Tlsf::Index Tlsf::lookup(std::uint64_t offset, std::uint64_t asked) const {
  const std::optional<Index> found = in_use_.find(offset);
  if (!found || nodes_[*found].asked != asked) {
    throw InvalidArgument("no block of " + format_size(asked) + " is in use at offset " +
                          std::to_string(offset));
  }
  return *found;
}

Tlsf::Block Tlsf::in_use(std::uint64_t offset, std::uint64_t asked) const {
  const Node& node = nodes_[lookup(offset, asked)];
  return {.offset = node.offset, .bytes = node.bytes, .frontier = node.frontier};
}

void Tlsf::set_frontier(std::uint64_t offset, std::uint64_t asked, const Frontier& frontier) {
  nodes_[lookup(offset, asked)].frontier = frontier;
}

Tlsf::Extent Tlsf::free(std::uint64_t offset, std::uint64_t asked, const Frontier& last_use,
                        const CoveredPoints* covered) {
  Index node = lookup(offset, asked);
  const Index after = free_neighbour(nodes_[node].after);
  const Index before = free_neighbour(nodes_[node].before);
  const bool at_the_end = (after == kNone ? node : after) == last_;
  // The only part that may fail comes first. It does not for what was just taken and not used: neighbours
  // that it was cut out of have the same frontier.
  const bool unused = last_use.empty();
  Frontier joined;
  if (unused) {
    joined = std::exchange(nodes_[node].frontier, {});
  } else {
    joined = last_use;
  }
  try {
    for (const Index neighbour : {after, before}) {
      if (neighbour != kNone) {
        join_uncovered(joined, nodes_[neighbour].frontier, covered);
      }
    }
    if (at_the_end) {
      join_uncovered(joined, beyond_, covered);
    }
  } catch (...) {
    if (unused) {
      nodes_[node].frontier = std::move(joined);
    }
    throw;
  }
  if (at_the_end) {
    beyond_.clear();
  }
  in_use_.erase(offset);
  in_use_bytes_ -= nodes_[node].bytes;
  asked_bytes_ -= asked;
  nodes_[node].state = State::kFree;
  if (after != kNone) {
    unlist(after);
    absorb_after(node);
  }
  if (before != kNone) {
    unlist(before);
    absorb_after(before);
    node = before;
  }
  nodes_[node].frontier = std::move(joined);
  enlist(node);
  return {.offset = nodes_[node].offset, .bytes = nodes_[node].bytes};
}

Tlsf::Index Tlsf::free_neighbour(Index node) const {
  return node != kNone && nodes_[node].state == State::kFree ? node : kNone;
}

std::uint64_t Tlsf::tail_bytes() const {
  const Index node = tail();
  return node == kNone ? 0 : nodes_[node].bytes;
}

Tlsf::Index Tlsf::tail() const {
  const bool vacant_behind = last_ != kNone && nodes_[last_].state == State::kVacant;
  return free_neighbour(vacant_behind ? nodes_[last_].before : last_);
}

Frontier Tlsf::tail_frontier() const {
  const Index node = tail();
  return node == kNone ? Frontier() : nodes_[node].frontier;
}

std::uint64_t Tlsf::largest_free_block_bytes() const {
  std::uint64_t largest = tail_bytes();
  if (first_level_ != 0) {
    const auto first = static_cast<unsigned>(std::bit_width(first_level_)) - 1;
    const auto step = static_cast<unsigned>(std::bit_width(second_level_[first])) - 1;
    for (Index node = heads_[first * kSecondLevel + step]; node != kNone; node = nodes_[node].next) {
      largest = std::max(largest, nodes_[node].bytes);
    }
  }
  return largest;
}

std::vector<Tlsf::Block> Tlsf::free_blocks() const {
  std::vector<Block> blocks;
  for (Index node = last_; node != kNone; node = nodes_[node].before) {
    if (nodes_[node].state == State::kFree) {
      blocks.push_back(
          {.offset = nodes_[node].offset, .bytes = nodes_[node].bytes, .frontier = nodes_[node].frontier});
    }
  }
  std::ranges::reverse(blocks);
  return blocks;
}

Tlsf::Index& Tlsf::head_of(Index node) {
  return nodes_[node].state == State::kVacant ? vacancies_ : heads_[class_of(nodes_[node].bytes)];
}

void Tlsf::enlist(Index node) {
  if (node == tail()) {
    return;
  }
  Index& head = head_of(node);
  nodes_[node].listed = true;
  nodes_[node].previous = kNone;
  nodes_[node].next = head;
  if (head != kNone) {
    nodes_[head].previous = node;
  }
  head = node;
  if (nodes_[node].state == State::kFree) {
    const unsigned size_class = class_of(nodes_[node].bytes);
    second_level_[size_class / kSecondLevel] |= std::uint32_t{1} << (size_class % kSecondLevel);
    first_level_ |= std::uint64_t{1} << (size_class / kSecondLevel);
  }
}

void Tlsf::unlist(Index node) {
  if (!std::exchange(nodes_[node].listed, false)) {
    return;
  }
  const auto [previous, next] = std::pair(nodes_[node].previous, nodes_[node].next);
  if (next != kNone) {
    nodes_[next].previous = previous;
  }
  if (previous != kNone) {
    nodes_[previous].next = next;
    return;
  }
  head_of(node) = next;
  if (next == kNone && nodes_[node].state == State::kFree) {
    const unsigned size_class = class_of(nodes_[node].bytes);
    std::uint32_t& steps = second_level_[size_class / kSecondLevel];
    steps &= ~(std::uint32_t{1} << (size_class % kSecondLevel));
    if (steps == 0) {
      first_level_ &= ~(std::uint64_t{1} << (size_class / kSecondLevel));
    }
  }
}

void Tlsf::prepare_nodes(std::size_t count) {
  for (; spares_ < count; ++spares_) {
    nodes_.emplace_back();
    nodes_.back().next = spare_;
    spare_ = static_cast<Index>(nodes_.size() - 1);
  }
}

Tlsf::Index Tlsf::append(Index before, std::uint64_t offset, std::uint64_t bytes) {
  const Index index = spare_;
  Node& node = nodes_[index];
  spare_ = node.next;
  --spares_;
  node.offset = offset;
  node.bytes = bytes;
  node.state = State::kFree;
  node.before = before;
  node.after = before == kNone ? kNone : nodes_[before].after;
  if (before != kNone) {
    nodes_[before].after = index;
  }
  if (node.after != kNone) {
    nodes_[node.after].before = index;
  }
  if (before == last_) {
    last_ = index;
  }
  return index;
}

void Tlsf::split(Index node, std::uint64_t bytes, Frontier frontier) {
  const Index rest = append(node, nodes_[node].offset + bytes, nodes_[node].bytes - bytes);
  nodes_[node].bytes = bytes;
  nodes_[rest].frontier = std::move(frontier);
  enlist(rest);
}

void Tlsf::absorb_after(Index node) {
  const Index gone = nodes_[node].after;
  nodes_[node].bytes += nodes_[gone].bytes;
  nodes_[node].after = nodes_[gone].after;
  if (nodes_[gone].after != kNone) {
    nodes_[nodes_[gone].after].before = node;
  }
  if (last_ == gone) {
    last_ = node;
  }
  nodes_[gone].frontier.clear();
  make_spare(gone);
}

void Tlsf::make_spare(Index node) {
  nodes_[node].next = spare_;
  spare_ = node;
  ++spares_;
}

// --- vacancies ---------------------------------------------------------------------------------------------

void Tlsf::append_vacancy(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  prepare_nodes(1);
  const Index node = append(last_, end_, bytes);
  end_ += bytes;
  vacant_bytes_ += bytes;
  become(node, State::kVacant);
}

std::optional<Tlsf::Room> Tlsf::room(std::uint64_t asked, std::uint64_t granule) const {
  const std::uint64_t bytes = round_up(std::max<std::uint64_t>(asked, 1), unit_);
  std::optional<Room> best;
  const auto consider = [&](Index from, bool backwards) {
    if (from == kNone) {
      return;
    }
    std::optional<Room> found = room_at(from, bytes, granule, backwards);
    if (found && (!best || found->bytes_to_fill < best->bytes_to_fill)) {
      best = std::move(found);
    }
  };
  for (Index node = vacancies_; node != kNone; node = nodes_[node].next) {
    consider(free_neighbour(nodes_[node].before), false);
    consider(node, false);
    consider(free_neighbour(nodes_[node].after), true);
    consider(node, true);
  }
  return best;
}

std::optional<Tlsf::Room> Tlsf::room_at(Index from, std::uint64_t bytes, std::uint64_t granule,
                                        bool backwards) const {
  Room room{.place = {.offset = nodes_[from].offset, .bytes = bytes}};
  if (backwards) {
    if (end_of(from) < bytes) {
      return std::nullopt;
    }
    room.place.offset = end_of(from) - bytes;
  }
  std::uint64_t missing = bytes;
  for (Index index = from; missing > 0; index = backwards ? nodes_[index].before : nodes_[index].after) {
    if (index == kNone || nodes_[index].state == State::kInUse) {
      return std::nullopt;
    }
    const Node& node = nodes_[index];
    const std::uint64_t taken = std::min(missing, node.bytes);
    missing -= taken;
    if (node.state == State::kVacant) {
      // A vacancy is of whole granules, so this is within it.
      const std::uint64_t filled = round_up(taken, granule);
      const std::uint64_t offset = backwards ? end_of(index) - filled : node.offset;
      room.to_fill.push_back({.offset = offset, .bytes = filled});
      room.bytes_to_fill += filled;
    }
  }
  return room;
}

Tlsf::Index Tlsf::vacancy_around(Extent extent) const {
  Index node = vacancies_;
  while (node != kNone &&
         (extent.offset < nodes_[node].offset || extent.end() > nodes_[node].offset + nodes_[node].bytes)) {
    node = nodes_[node].next;
  }
  if (node == kNone) {
    throw InvalidArgument("no vacancy of " + format_size(extent.bytes) + " at offset " +
                          std::to_string(extent.offset));
  }
  return node;
}

Tlsf::Extent Tlsf::lowest_vacancy(std::uint64_t at_least) const {
  Index lowest = kNone;
  for (Index node = vacancies_; node != kNone; node = nodes_[node].next) {
    const bool is_lower = lowest == kNone || nodes_[node].offset < nodes_[lowest].offset;
    lowest = nodes_[node].bytes >= at_least && is_lower ? node : lowest;
  }
  return lowest == kNone ? Extent{} : Extent{.offset = nodes_[lowest].offset, .bytes = nodes_[lowest].bytes};
}

void Tlsf::prepare_to_fill(Extent extent, const Frontier& frontier) {
  const Index around = vacancy_around(extent);
  prepare_nodes(2);
  prepared_ = frontier;
  if (extent.offset == nodes_[around].offset && free_neighbour(nodes_[around].before) != kNone) {
    prepared_.join(nodes_[nodes_[around].before].frontier);
  }
  if (extent.end() == end_of(around) && free_neighbour(nodes_[around].after) != kNone) {
    prepared_.join(nodes_[nodes_[around].after].frontier);
  }
}

void Tlsf::fill(Extent extent, const Frontier& frontier) {
  prepare_to_fill(extent, frontier);
  vacant_bytes_ -= extent.bytes;
  const Index filled = become(cut_out(vacancy_around(extent), extent, {}), State::kFree);
  nodes_[filled].frontier = std::move(prepared_);
}

Frontier Tlsf::take(Index block, Extent extent) {
  Frontier handed_out_with = nodes_[block].frontier;
  Frontier behind = handed_out_with;
  Frontier kept = handed_out_with;
  prepare_nodes(2);
  in_use_.reserve(in_use_.size() + 1);
  // Nothing fails from here on.
  const Index taken = cut_out(block, extent, std::move(behind));
  nodes_[taken].state = State::kInUse;
  nodes_[taken].asked = extent.bytes;
  nodes_[taken].frontier = std::move(kept);
  in_use_.insert(extent.offset, taken);
  relist(nodes_[taken].before);
  relist(nodes_[taken].after);
  in_use_bytes_ += extent.bytes;
  asked_bytes_ += extent.bytes;
  return handed_out_with;
}

void Tlsf::prepare_to_vacate(Index block) {
  prepare_nodes(2);
  prepared_ = nodes_[block].frontier;
}

void Tlsf::vacate(Index block, Extent extent) {
  vacant_bytes_ += extent.bytes;
  const Index vacated = become(cut_out(block, extent, std::move(prepared_)), State::kVacant);
  nodes_[vacated].frontier.clear();
}

Tlsf::Index Tlsf::cut_out(Index node, Extent extent, Frontier behind) {
  unlist(node);
  const State state = nodes_[node].state;
  if (extent.end() < end_of(node)) {
    const Index rest = append(node, extent.end(), end_of(node) - extent.end());
    nodes_[rest].state = state;
    nodes_[rest].frontier = std::move(behind);
    nodes_[node].bytes -= nodes_[rest].bytes;
  }
  if (extent.offset > nodes_[node].offset) {
    const Index cut = append(node, extent.offset, extent.bytes);
    nodes_[cut].state = state;
    nodes_[node].bytes -= extent.bytes;
    return cut;
  }
  return node;
}

Tlsf::Index Tlsf::become(Index node, State state) {
  nodes_[node].state = state;
  const auto same = [&](Index neighbour) { return neighbour != kNone && nodes_[neighbour].state == state; };
  if (const Index after = nodes_[node].after; same(after)) {
    unlist(after);
    absorb_after(node);
  }
  if (const Index before = nodes_[node].before; same(before)) {
    unlist(before);
    absorb_after(before);
    node = before;
  }
  relist(node);
  relist(nodes_[node].after);
  // What is a tail, and so in no list, depends on what is behind it.
  if (const Index before = nodes_[node].before; before != kNone) {
    relist(before);
    relist(nodes_[before].before);
  }
  return node;
}

void Tlsf::relist(Index node) {
  if (node != kNone && nodes_[node].state != State::kInUse) {
    unlist(node);
    enlist(node);
  }
}

}  // namespace vdnn
