#include "allocator/tlsf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "vdnn/size.h"

namespace vdnn {

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

Tlsf::Index Tlsf::pick(unsigned size_class, std::uint64_t bytes, const Frontier& requester,
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

Tlsf::Index Tlsf::find_hole(std::uint64_t bytes, const Frontier& requester) const {
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
  asked = std::max<std::uint64_t>(asked, 1);
  const std::uint64_t bytes = round_up(asked, unit_);
  Index node = find_hole(bytes, requester);
  if (node == kNone) {
    if (tail_bytes() < bytes) {
      return std::nullopt;
    }
    node = last_;
  }
  // Whatever may fail comes first.
  Block block{.offset = nodes_[node].offset, .bytes = bytes, .frontier = nodes_[node].frontier};
  Frontier behind = block.frontier;
  prepare_node();
  prepare_entry();
  enter(node);
  unlist(node);
  nodes_[node].free = false;
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
    prepare_node();
    nodes_[append(last_, end_, bytes)].frontier = std::exchange(beyond_, {});
  }
  end_ += bytes;
}

Tlsf::Index Tlsf::lookup(std::uint64_t offset, std::uint64_t asked) const {
  const auto found = in_use_.find(offset);
  if (found == in_use_.end() || nodes_[found->second].asked != asked) {
    throw InvalidArgument("no block of " + format_size(asked) + " is in use at offset " +
                          std::to_string(offset));
  }
  return found->second;
}

Tlsf::Block Tlsf::in_use(std::uint64_t offset, std::uint64_t asked) const {
  const Node& node = nodes_[lookup(offset, asked)];
  return {.offset = node.offset, .bytes = node.bytes, .frontier = node.frontier};
}

void Tlsf::set_frontier(std::uint64_t offset, std::uint64_t asked, const Frontier& frontier) {
  nodes_[lookup(offset, asked)].frontier = frontier;
}

void Tlsf::free(std::uint64_t offset, std::uint64_t asked, const Frontier& last_use) {
  Index node = lookup(offset, asked);
  const Index after = free_neighbour(nodes_[node].after);
  const Index before = free_neighbour(nodes_[node].before);
  const bool at_the_end = (after == kNone ? node : after) == last_;
  // The only part that may fail comes first.
  Frontier joined = last_use.empty() ? nodes_[node].frontier : last_use;
  for (const Index neighbour : {after, before}) {
    if (neighbour != kNone) {
      joined.join(nodes_[neighbour].frontier);
    }
  }
  if (at_the_end) {
    joined.join(beyond_);
    beyond_.clear();
  }
  leave(offset);
  in_use_bytes_ -= nodes_[node].bytes;
  asked_bytes_ -= asked;
  nodes_[node].free = true;
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
}

Tlsf::Index Tlsf::free_neighbour(Index node) const {
  return node != kNone && nodes_[node].free ? node : kNone;
}

std::uint64_t Tlsf::tail_bytes() const {
  return last_ != kNone && nodes_[last_].free ? nodes_[last_].bytes : 0;
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
    if (nodes_[node].free) {
      blocks.push_back(
          {.offset = nodes_[node].offset, .bytes = nodes_[node].bytes, .frontier = nodes_[node].frontier});
    }
  }
  std::ranges::reverse(blocks);
  return blocks;
}

void Tlsf::enlist(Index node) {
  if (node == last_) {
    return;
  }
  const unsigned size_class = class_of(nodes_[node].bytes);
  Index& head = heads_[size_class];
  nodes_[node].previous = kNone;
  nodes_[node].next = head;
  if (head != kNone) {
    nodes_[head].previous = node;
  }
  head = node;
  second_level_[size_class / kSecondLevel] |= std::uint32_t{1} << (size_class % kSecondLevel);
  first_level_ |= std::uint64_t{1} << (size_class / kSecondLevel);
}

void Tlsf::unlist(Index node) {
  if (node == last_) {
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
  const unsigned size_class = class_of(nodes_[node].bytes);
  heads_[size_class] = next;
  if (next == kNone) {
    std::uint32_t& steps = second_level_[size_class / kSecondLevel];
    steps &= ~(std::uint32_t{1} << (size_class % kSecondLevel));
    if (steps == 0) {
      first_level_ &= ~(std::uint64_t{1} << (size_class / kSecondLevel));
    }
  }
}

void Tlsf::prepare_node() {
  if (spare_ == kNone) {
    nodes_.emplace_back();
    spare_ = static_cast<Index>(nodes_.size() - 1);
  }
}

void Tlsf::prepare_entry() {
  const std::size_t wanted = in_use_.size() + 1;
  if (static_cast<float>(wanted) > in_use_.max_load_factor() * static_cast<float>(in_use_.bucket_count())) {
    in_use_.reserve(2 * wanted);
  }
  if (spare_entries_.capacity() < wanted) {
    spare_entries_.reserve(2 * wanted);
  }
  if (spare_entries_.empty()) {
    Entries fresh{{0, kNone}};
    spare_entries_.push_back(fresh.extract(fresh.begin()));
  }
}

void Tlsf::enter(Index node) {
  Entries::node_type& entry = spare_entries_.back();
  entry.key() = nodes_[node].offset;
  entry.mapped() = node;
  in_use_.insert(std::move(entry));
  spare_entries_.pop_back();
}

void Tlsf::leave(std::uint64_t offset) {
  spare_entries_.push_back(in_use_.extract(offset));
}

Tlsf::Index Tlsf::append(Index before, std::uint64_t offset, std::uint64_t bytes) {
  const Index index = spare_;
  Node& node = nodes_[index];
  spare_ = node.next;
  node.offset = offset;
  node.bytes = bytes;
  node.free = true;
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
  nodes_[gone].next = spare_;
  spare_ = gone;
}

}  // namespace vdnn
