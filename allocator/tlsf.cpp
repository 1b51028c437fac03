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
Tlsf::Index Tlsf::choose_in_class(unsigned size_class, std::uint64_t bytes, const Requester& requester,
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
Tlsf::Index Tlsf::choose_hole(std::uint64_t bytes, const Requester& requester) const {
  const unsigned own = class_of(bytes);
  if (const Index node = choose_in_class(own, bytes, requester, kCandidates); node != kNone) {
    return node;
  }
  if (const unsigned larger = next_class(own + 1); larger < kClasses) {
    return choose_in_class(larger, bytes, requester, kCandidates);
  }
  return choose_in_class(own, bytes, requester, std::numeric_limits<std::size_t>::max());
}

std::optional<Tlsf::Block> Tlsf::allocate(std::uint64_t asked, const Frontier& requester) {
  return allocate<Frontier>(asked, requester);
}

template <class Requester>
std::optional<Tlsf::Block> Tlsf::allocate(std::uint64_t asked, const Requester& requester) {
  asked = std::max<std::uint64_t>(asked, 1);
  const std::uint64_t bytes = round_up_to_units(asked);
  Index node = choose_hole(bytes, requester);
  if (node == kNone) {
    if (tail_bytes() < bytes) {
      return std::nullopt;
    }
    node = tail();
  }
  // Calls that may fail come first.
  Block block{.offset = nodes_[node].offset, .bytes = bytes, .frontier = nodes_[node].frontier};
  Frontier rest_frontier = block.frontier;
  prepare_nodes(1);
  prepare_use();
  unlist(node);
  if (nodes_[node].bytes > bytes) {
    split(node, bytes, std::move(rest_frontier));
  } else if (node == last_) {
    // Memory appended next inherits the frontier, as the rest of this block would have done.
    beyond_ = std::move(rest_frontier);
  }
  use(node, asked);
  return block;
}

template std::optional<Tlsf::Block> Tlsf::allocate(std::uint64_t asked, const StreamKnowledge& requester);

void Tlsf::use(Index node, std::uint64_t asked) {
  in_use_.insert(nodes_[node].offset, node);
  nodes_[node].state = State::kInUse;
  nodes_[node].asked = asked;
  in_use_bytes_ += nodes_[node].bytes;
  asked_bytes_ += asked;
}

std::uint64_t Tlsf::round_up_to_units(std::uint64_t asked) const {
  return round_up(std::max<std::uint64_t>(asked, 1), unit_);
}

std::uint64_t Tlsf::missing(std::uint64_t asked) const {
  const std::uint64_t bytes = round_up_to_units(asked);
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
    // Memory appended later inherits the frontier.
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
  // The only part that may fail comes first. It cannot fail for a block that was just allocated and not used:
  // the neighbours that the block was cut out of have the same frontier.
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
  const bool ends_with_vacancy = last_ != kNone && nodes_[last_].state == State::kVacant;
  return free_neighbour(ends_with_vacancy ? nodes_[last_].before : last_);
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

void Tlsf::link(Index node, Index& head) {
  nodes_[node].listed = true;
  nodes_[node].previous = kNone;
  nodes_[node].next = head;
  if (head != kNone) {
    nodes_[head].previous = node;
  }
  head = node;
}

bool Tlsf::unlink(Index node) {
  nodes_[node].listed = false;
  const auto [previous, next] = std::pair(nodes_[node].previous, nodes_[node].next);
  if (next != kNone) {
    nodes_[next].previous = previous;
  }
  if (previous != kNone) {
    nodes_[previous].next = next;
  }
  return previous == kNone;
}

void Tlsf::enlist(Index node) {
  if (node == tail()) {
    return;
  }
  const unsigned size_class = class_of(nodes_[node].bytes);
  link(node, heads_[size_class]);
  second_level_[size_class / kSecondLevel] |= std::uint32_t{1} << (size_class % kSecondLevel);
  first_level_ |= std::uint64_t{1} << (size_class / kSecondLevel);
}

void Tlsf::unlist(Index node) {
  if (!nodes_[node].listed || !unlink(node)) {
    return;
  }
  const unsigned size_class = class_of(nodes_[node].bytes);
  heads_[size_class] = nodes_[node].next;
  if (heads_[size_class] == kNone) {
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

}  // namespace vdnn
