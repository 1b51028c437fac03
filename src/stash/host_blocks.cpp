#include "src/stash/host_blocks.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::stash {

namespace {

// A request gets a block that is at most this many times as large.
constexpr std::uint64_t kMostTimes = 4;
// After each step, the needs of past steps are reduced by 1/kStepsOfMemory.
constexpr std::uint64_t kStepsOfMemory = 64;

}  // namespace

HostBlocks::~HostBlocks() {
  try {
    backend_.synchronize_copies();
    for (auto& [bytes, size] : sizes_) {
      stranded_.splice(stranded_.end(), size.kept);
    }
    for (const HostBlock& block : stranded_) {
      backend_.free_host(block.range);
    }
  } catch (...) {
    // The device is failing. Its backend or the driver frees the remaining blocks.
  }
}

HostBlocks::Lease HostBlocks::take(std::uint64_t bytes, Room room) {
  const std::uint64_t size = host_block_bytes(bytes);
  is_refused_by_system_ = false;
  if (Lease lease = take_kept(size, largest_for(size)); !lease.empty()) {
    return lease;
  }
  const bool may_free = room == Room::kMade;
  Lease lease;
  if (fits(size, may_free ? budget_bytes_ : limit_bytes_)) {
    lease = make(size);
  }
  if (lease.empty() && may_free) {
    lease = make_in_room(size, {});
  }
  if (lease.empty()) {
    is_refused_by_system_ = fits(size, budget_bytes_, may_free ? spare_bytes({}) : 0);
    lease = take_kept(size, size * kMostTimes);
  }
  return lease;
}

// Takes the smallest kept block of `size` to `largest` bytes. Returns an empty lease if there is none.
HostBlocks::Lease HostBlocks::take_kept(std::uint64_t size, std::uint64_t largest) {
  Lease lease;
  for (auto found = sizes_.lower_bound(size); found != sizes_.end() && found->first <= largest; ++found) {
    if (Lease& kept = found->second.kept; !kept.empty()) {
      lease.splice(lease.end(), kept, kept.begin());
      break;
    }
  }
  return lease;
}

std::uint64_t HostBlocks::largest_for(std::uint64_t size) const {
  return bytes_ <= limit_bytes_ / 2 ? size * kMostTimes : size + size / 4;
}

// Meets large needs first. Each need gets the smallest remaining block that fits.
HostBlocks::Match HostBlocks::match(const HostBlockCounts& needs, Fit fit) const {
  Match match;
  for (auto need = needs.rbegin(); need != needs.rend(); ++need) {
    const auto [size, count] = *need;
    const std::uint64_t largest = fit == Fit::kOwnSize ? size : largest_for(size);
    std::size_t missing = count;
    for (auto found = sizes_.lower_bound(size);
         missing > 0 && found != sizes_.end() && found->first <= largest; ++found) {
      const auto used = match.used.find(found->first);
      const std::size_t left = found->second.blocks - (used == match.used.end() ? 0 : used->second);
      if (const std::size_t more = std::min(missing, left); more > 0) {
        match.used[found->first] += more;
        missing -= more;
      }
    }
    if (missing > 0) {
      match.unmet[size] = missing;
    }
  }
  return match;
}

void HostBlocks::provide(const HostBlockCounts& needs, Fit fit) {
  Match match = this->match(needs, fit);
  for (auto need = match.unmet.rbegin(); need != match.unmet.rend(); ++need) {
    const std::uint64_t size = need->first;
    for (std::size_t missing = need->second; missing > 0; --missing) {
      Lease lease = make_in_room(size, match.used);
      if (lease.empty()) {
        break;
      }
      give(std::move(lease), {});
      ++match.used[size];
    }
  }
}

// Locks just enough to reach the refused total. Under the same limit, that is refused again.
void HostBlocks::retry_refused() {
  if (limit_bytes_ == budget_bytes_ || !std::has_single_bit(++calls_at_limit_)) {
    return;
  }
  if (Lease lease = make(limit_bytes_ - bytes_ + 1); !lease.empty()) {
    give(std::move(lease), {});
  }
}

void HostBlocks::end_step(const HostBlockCounts& ended, std::span<const HostBlockCounts* const> expected) {
  std::uint64_t bytes = 0;
  for (const auto& [size, count] : ended) {
    bytes += size * count;
  }
  recent_needs_bytes_ = std::max(recent_needs_bytes_ - recent_needs_bytes_ / kStepsOfMemory, bytes);
  if (bytes_ > 2 * recent_needs_bytes_) {
    HostBlockCounts needed;
    for (const HostBlockCounts* const each : expected) {
      for (const auto& [size, count] : match(*each, Fit::kAny).used) {
        needed[size] = std::max(needed[size], count);
      }
    }
    while (bytes_ > 2 * recent_needs_bytes_ && free_smallest_unused(needed)) {
    }
  }
  gifts_before_step_ = gifts_;
}

// Each refusal lowers the limit so that at least one block more must be freed.
HostBlocks::Lease HostBlocks::make_in_room(std::uint64_t size, const HostBlockCounts& needed) {
  Lease lease;
  while (lease.empty() && make_room_for(size, needed)) {
    lease = make(size);
  }
  return lease;
}

bool HostBlocks::make_room_for(std::uint64_t size, const HostBlockCounts& needed) {
  if (!fits(size, limit_bytes_, spare_bytes(needed))) {
    return false;
  }
  while (!fits(size, limit_bytes_)) {
    free_oldest(needed);
  }
  return true;
}

std::uint64_t HostBlocks::spare_bytes(const HostBlockCounts& needed) const {
  std::uint64_t bytes = 0;
  for (const auto& [block_size, blocks] : sizes_) {
    const auto found = needed.find(block_size);
    const std::size_t spare =
        blocks.blocks - std::min(blocks.blocks, found == needed.end() ? 0 : found->second);
    bytes += block_size * std::min(spare, blocks.kept.size());
  }
  return bytes;
}

HostBlocks::Lease HostBlocks::make(std::uint64_t size) {
  Lease lease(1);
  const auto blocks = sizes_.try_emplace(size).first;  // may throw, so it is done before a page is locked
  try {
    lease.front().range = backend_.allocate_host(size);
  } catch (const OutOfMemory&) {
    if (blocks->second.blocks == 0) {
      sizes_.erase(blocks);
    }
    limit_bytes_ = std::min(limit_bytes_, bytes_ + size - 1);
    return {};
  }
  ++blocks->second.blocks;
  bytes_ += size;
  if (bytes_ > limit_bytes_) {
    limit_bytes_ = budget_bytes_;
  }
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  ++page_locks_;
  return lease;
}

void HostBlocks::give(Lease lease, StashEvent last_use) noexcept {
  HostBlock& block = lease.front();
  if (last_use) {
    block.last_use = std::move(last_use);
  }
  block.given = ++gifts_;
  Lease& kept = sizes_.find(block.range.bytes)->second.kept;
  kept.splice(kept.end(), lease);
}

void HostBlocks::give_unordered(Lease lease) noexcept {
  try {
    backend_.synchronize_copies();
    give(std::move(lease), {});
  } catch (...) {
    stranded_.splice(stranded_.end(), lease);
  }
}

bool HostBlocks::is_spare(const Sizes::value_type& size, const HostBlockCounts& needed) const {
  const auto& [bytes, blocks] = size;
  const auto found = needed.find(bytes);
  return !blocks.kept.empty() && (found == needed.end() || blocks.blocks > found->second);
}

bool HostBlocks::free_oldest(const HostBlockCounts& needed) {
  auto oldest = sizes_.end();
  for (auto size = sizes_.begin(); size != sizes_.end(); ++size) {
    if (is_spare(*size, needed) &&
        (oldest == sizes_.end() || size->second.kept.front().given < oldest->second.kept.front().given)) {
      oldest = size;
    }
  }
  return free_one_of(oldest);
}

bool HostBlocks::free_smallest_unused(const HostBlockCounts& needed) {
  return free_one_of(std::ranges::find_if(sizes_, [&](const Sizes::value_type& size) {
    return is_spare(size, needed) && size.second.kept.front().given <= gifts_before_step_;
  }));
}

// Frees a kept block of this size. Returns whether there was one.
bool HostBlocks::free_one_of(Sizes::iterator size) {
  if (size == sizes_.end()) {
    return false;
  }
  Size& blocks = size->second;
  const HostBlock& block = blocks.kept.front();
  if (block.last_use) {
    backend_.synchronize(block.last_use.get());
  }
  backend_.free_host(block.range);
  bytes_ -= block.range.bytes;
  blocks.kept.pop_front();
  if (--blocks.blocks == 0) {
    sizes_.erase(size);
  }
  return true;
}

}  // namespace vdnn::stash
