#include "src/stash/host_blocks.h"

#include <algorithm>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::stash {

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
    // The device is failing: its backend frees what is left, or leaves it to the driver.
  }
}

HostBlocks::Lease HostBlocks::take(std::uint64_t bytes) {
  Lease lease;
  Lease& kept = sizes_[bytes].kept;
  if (!kept.empty()) {
    lease.splice(lease.end(), kept, kept.begin());
    return lease;
  }
  return has_room_for(bytes) ? make(bytes) : std::move(lease);
}

void HostBlocks::reserve(std::uint64_t bytes, std::size_t count) {
  const Size& size = sizes_[bytes];
  while (size.blocks < count && bytes <= budget_bytes_ - bytes_) {
    Lease lease = make(bytes);
    if (lease.empty()) {
      return;
    }
    give(std::move(lease), {});
  }
}

bool HostBlocks::has_room_for(std::uint64_t bytes) {
  if (bytes > budget_bytes_) {
    return false;
  }
  while (bytes_ > budget_bytes_ - bytes) {
    if (!free_oldest()) {
      return false;
    }
  }
  return true;
}

HostBlocks::Lease HostBlocks::make(std::uint64_t bytes) {
  Lease lease(1);
  while (lease.front().range.bytes == 0) {
    try {
      lease.front().range = backend_.allocate_host(bytes);
    } catch (const OutOfMemory&) {
      if (!free_oldest()) {
        return {};
      }
    }
  }
  ++sizes_.at(bytes).blocks;
  bytes_ += bytes;
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

bool HostBlocks::free_oldest() {
  Size* oldest = nullptr;
  for (auto& [bytes, size] : sizes_) {
    if (!size.kept.empty() && (oldest == nullptr || size.kept.front().given < oldest->kept.front().given)) {
      oldest = &size;
    }
  }
  if (oldest == nullptr) {
    return false;
  }
  const HostBlock& block = oldest->kept.front();
  if (block.last_use) {
    backend_.synchronize(block.last_use.get());
  }
  backend_.free_host(block.range);
  bytes_ -= block.range.bytes;
  --oldest->blocks;
  oldest->kept.pop_front();
  return true;
}

}  // namespace vdnn::stash
