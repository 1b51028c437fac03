#include "allocator/sparse_tlsf.h"

#include <algorithm>
#include <string>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

void SparseTlsf::append_vacancy(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  prepare_nodes(1);
  const Index node = append(last(), end(), bytes);
  extend_end(bytes);
  vacant_bytes_ += bytes;
  become(node, State::kVacant);
}

std::optional<SparseTlsf::Placement> SparseTlsf::choose_placement(std::uint64_t asked,
                                                                  std::uint64_t granule) const {
  const std::uint64_t bytes = round_up_to_units(asked);
  std::optional<Placement> best;
  const auto consider = [&](Index from, bool backwards) {
    if (from == kNone) {
      return;
    }
    std::optional<Placement> found = placement_at(from, bytes, granule, backwards);
    if (found && (!best || found->bytes_to_commit < best->bytes_to_commit)) {
      best = std::move(found);
    }
  };
  for (Index node = vacancies_; node != kNone; node = at(node).next) {
    consider(free_neighbour(at(node).before), false);
    consider(node, false);
    consider(free_neighbour(at(node).after), true);
    consider(node, true);
  }
  return best;
}

std::optional<SparseTlsf::Placement> SparseTlsf::placement_at(Index from, std::uint64_t bytes,
                                                              std::uint64_t granule, bool backwards) const {
  Placement placement;
  placement.extent = {.offset = at(from).offset, .bytes = bytes};
  if (backwards) {
    if (end_of(from) < bytes) {
      return std::nullopt;
    }
    placement.extent.offset = end_of(from) - bytes;
  }
  std::uint64_t missing = bytes;
  for (Index index = from; missing > 0; index = backwards ? at(index).before : at(index).after) {
    if (index == kNone || at(index).state == State::kInUse) {
      return std::nullopt;
    }
    const Node& node = at(index);
    const std::uint64_t taken = std::min(missing, node.bytes);
    missing -= taken;
    if (node.state == State::kVacant) {
      // A vacancy consists of whole granules, so this part lies within it.
      const std::uint64_t committed = round_up(taken, granule);
      const std::uint64_t offset = backwards ? end_of(index) - committed : node.offset;
      placement.to_commit.push_back({.offset = offset, .bytes = committed});
      placement.bytes_to_commit += committed;
    }
  }
  return placement;
}

SparseTlsf::Index SparseTlsf::vacancy_around(Extent extent) const {
  Index node = vacancies_;
  while (node != kNone && (extent.offset < at(node).offset || extent.end() > end_of(node))) {
    node = at(node).next;
  }
  if (node == kNone) {
    throw InvalidArgument("no vacancy of " + format_size(extent.bytes) + " at offset " +
                          std::to_string(extent.offset));
  }
  return node;
}

SparseTlsf::Extent SparseTlsf::lowest_vacancy(std::uint64_t bytes) const {
  Index lowest = kNone;
  for (Index node = vacancies_; node != kNone; node = at(node).next) {
    const bool is_lower = lowest == kNone || at(node).offset < at(lowest).offset;
    lowest = at(node).bytes >= bytes && is_lower ? node : lowest;
  }
  return lowest == kNone ? Extent{} : extent_of(lowest);
}

void SparseTlsf::prepare_to_commit(Extent extent, const Frontier& frontier) {
  const Index around = vacancy_around(extent);
  prepare_nodes(2);
  prepared_ = frontier;
  if (extent.offset == at(around).offset && free_neighbour(at(around).before) != kNone) {
    prepared_.join(at(at(around).before).frontier);
  }
  if (extent.end() == end_of(around) && free_neighbour(at(around).after) != kNone) {
    prepared_.join(at(at(around).after).frontier);
  }
}

void SparseTlsf::commit(Extent extent, const Frontier& frontier) {
  prepare_to_commit(extent, frontier);
  vacant_bytes_ -= extent.bytes;
  const Index committed = become(cut_out(vacancy_around(extent), extent, {}), State::kFree);
  at(committed).frontier = std::move(prepared_);
}

Frontier SparseTlsf::allocate_at(Index block, Extent extent) {
  Frontier handed_out_after = at(block).frontier;
  Frontier rest_frontier = handed_out_after;
  Frontier kept = handed_out_after;
  prepare_nodes(2);
  prepare_use();
  // Nothing fails from here on.
  const Index allocated = cut_out(block, extent, std::move(rest_frontier));
  at(allocated).frontier = std::move(kept);
  use(allocated, extent.bytes);
  relist(at(allocated).before);
  relist(at(allocated).after);
  return handed_out_after;
}

void SparseTlsf::prepare_to_decommit(Index block) {
  prepare_nodes(2);
  prepared_ = at(block).frontier;
}

void SparseTlsf::decommit(Index block, Extent extent) {
  vacant_bytes_ += extent.bytes;
  const Index vacated = become(cut_out(block, extent, std::move(prepared_)), State::kVacant);
  at(vacated).frontier.clear();
}

SparseTlsf::Index SparseTlsf::cut_out(Index node, Extent extent, Frontier rest_frontier) {
  remove_from_list(node);
  const State state = at(node).state;
  if (extent.end() < end_of(node)) {
    const Index rest = append(node, extent.end(), end_of(node) - extent.end());
    at(rest).state = state;
    at(rest).frontier = std::move(rest_frontier);
    at(node).bytes -= at(rest).bytes;
  }
  if (extent.offset > at(node).offset) {
    const Index cut = append(node, extent.offset, extent.bytes);
    at(cut).state = state;
    at(node).bytes -= extent.bytes;
    return cut;
  }
  return node;
}

SparseTlsf::Index SparseTlsf::become(Index node, State state) {
  at(node).state = state;
  const auto same = [&](Index neighbour) { return neighbour != kNone && at(neighbour).state == state; };
  if (const Index after = at(node).after; same(after)) {
    remove_from_list(after);
    absorb_after(node);
  }
  if (const Index before = at(node).before; same(before)) {
    remove_from_list(before);
    absorb_after(before);
    node = before;
  }
  relist(node);
  relist(at(node).after);
  // Whether a free block is the tail, and so in no list, depends on its neighbour.
  if (const Index before = at(node).before; before != kNone) {
    relist(before);
    relist(at(before).before);
  }
  return node;
}

void SparseTlsf::remove_from_list(Index node) {
  if (at(node).state == State::kFree) {
    unlist(node);
  } else if (at(node).listed && unlink(node)) {
    vacancies_ = at(node).next;
  }
}

void SparseTlsf::relist(Index node) {
  if (node == kNone || at(node).state == State::kInUse) {
    return;
  }
  remove_from_list(node);
  if (at(node).state == State::kFree) {
    enlist(node);
  } else {
    link(node, vacancies_);
  }
}

}  // namespace vdnn
