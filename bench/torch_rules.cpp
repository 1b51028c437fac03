#include "bench/torch_rules.h"

#include <algorithm>
#include <iterator>

#include "vdnn/size.h"

namespace vdnn::bench {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kUnit = 512;
constexpr std::uint64_t kSmall = kMiB;  // the largest small request
constexpr std::uint64_t kSmallSegment = 2 * kMiB;
constexpr std::uint64_t kLargeSegment = 20 * kMiB;
constexpr std::uint64_t kOwnSegment = 10 * kMiB;  // the least request with a segment of its own
constexpr std::uint64_t kOwnSegmentUnit = 2 * kMiB;

std::uint64_t fixed_segment_bytes(std::uint64_t request) {
  if (request <= kSmall) {
    return kSmallSegment;
  }
  return request < kOwnSegment ? kLargeSegment : round_up(request, kOwnSegmentUnit);
}

}  // namespace

void TorchRules::allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool /*lasting*/) {
  const std::uint64_t rounded = round_up(std::max<std::uint64_t>(bytes, 1), kUnit);
  const bool small = rounded <= kSmall;
  Pool& pool = pools_[{stream, small}];
  pool.small = small;
  blocks_[block] = take(pool, rounded);
}

void TorchRules::free(std::uint64_t block, std::uint32_t /*stream*/) {
  const auto found = blocks_.find(block);
  auto [segment, offset, bytes] = found->second;
  blocks_.erase(found);
  std::map<std::uint64_t, std::uint64_t>& neighbours = segments_.at(segment).free;
  if (const auto after = neighbours.find(offset + bytes); after != neighbours.end()) {
    const std::uint64_t more = after->second;
    unlist(segment, offset + bytes, more);
    bytes += more;
  }
  if (const auto behind = neighbours.lower_bound(offset); behind != neighbours.begin()) {
    const auto [before, its_bytes] = *std::prev(behind);
    if (before + its_bytes == offset) {
      unlist(segment, before, its_bytes);
      offset = before;
      bytes += its_bytes;
    }
  }
  enlist(segment, offset, bytes);
}

TorchRules::Block TorchRules::take(Pool& pool, std::uint64_t bytes) {
  const auto found = find(pool, bytes);
  const auto [available, segment, offset] = found == pool.free.end() ? grow(pool, bytes) : *found;
  unlist(segment, offset, available);
  const std::uint64_t rest = available - bytes;
  if (!is_split(pool, rest)) {
    return {.segment = segment, .offset = offset, .bytes = available};
  }
  enlist(segment, offset + bytes, rest);
  return {.segment = segment, .offset = offset, .bytes = bytes};
}

std::set<TorchRules::FreeBlock>::iterator TorchRules::find(Pool& pool, std::uint64_t bytes) const {
  auto found = pool.free.lower_bound({bytes, 0, 0});
  if (expandable_ && found != pool.free.end()) {
    // The block at the end can grow, so it is used only if no other block fits.
    const auto [available, segment, offset] = *found;
    const auto next = std::next(found);
    if (offset + available == segments_.at(segment).bytes && next != pool.free.end()) {
      found = next;
    }
  }
  return found;
}

TorchRules::FreeBlock TorchRules::grow(Pool& pool, std::uint64_t bytes) {
  if (!expandable_) {
    const std::uint64_t fresh = fixed_segment_bytes(bytes);
    const std::size_t segment = add_segment(pool, fresh);
    enlist(segment, 0, fresh);
    return {fresh, segment, 0};
  }
  if (pool.expandable_segment == kNone) {
    pool.expandable_segment = add_segment(pool, 0);
  }
  Segment& segment = segments_.at(pool.expandable_segment);
  std::uint64_t offset = segment.bytes;
  std::uint64_t available = 0;
  if (!segment.free.empty()) {
    const auto [last, its_bytes] = *segment.free.rbegin();
    if (last + its_bytes == segment.bytes) {
      offset = last;
      available = its_bytes;
      unlist(pool.expandable_segment, last, its_bytes);
    }
  }
  const std::uint64_t more = round_up(bytes - available, pool.small ? kSmallSegment : kLargeSegment);
  segment.bytes += more;
  reserved_ += more;
  enlist(pool.expandable_segment, offset, available + more);
  return {available + more, pool.expandable_segment, offset};
}

std::size_t TorchRules::add_segment(Pool& pool, std::uint64_t bytes) {
  const std::size_t number = segments_.size();
  segments_[number] = {.pool = &pool, .bytes = bytes};
  reserved_ += bytes;
  return number;
}

bool TorchRules::is_split(const Pool& pool, std::uint64_t rest) const {
  return pool.small || expandable_ ? rest >= kUnit : rest > kSmall;
}

void TorchRules::enlist(std::size_t segment, std::uint64_t offset, std::uint64_t bytes) {
  Segment& in = segments_.at(segment);
  in.free[offset] = bytes;
  in.pool->free.insert({bytes, segment, offset});
}

void TorchRules::unlist(std::size_t segment, std::uint64_t offset, std::uint64_t bytes) {
  Segment& in = segments_.at(segment);
  in.free.erase(offset);
  in.pool->free.erase({bytes, segment, offset});
}

}  // namespace vdnn::bench
