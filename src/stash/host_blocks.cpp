#include "src/stash/host_blocks.h"

#include <algorithm>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::stash {

HostBlocks::~HostBlocks() {
  try {
    backend_.synchronize_copies();
    for (auto& [bytes, kept] : kept_) {
      stranded_.splice(stranded_.end(), kept);
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
  Lease& kept = kept_[bytes];
  if (!kept.empty()) {
    lease.splice(lease.end(), kept, kept.begin());
    return lease;
  }
  if (bytes > budget_bytes_) {
    return lease;
  }
  while (bytes_ > budget_bytes_ - bytes) {
    if (!free_oldest()) {
      return lease;
    }
  }
  return make(bytes);
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
  Lease& kept = kept_.find(block.range.bytes)->second;
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
  Lease* oldest = nullptr;
  for (auto& [bytes, kept] : kept_) {
    if (!kept.empty() && (oldest == nullptr || kept.front().given < oldest->front().given)) {
      oldest = &kept;
    }
  }
  if (oldest == nullptr) {
    return false;
  }
  HostBlock& block = oldest->front();
  if (block.last_use) {
    backend_.synchronize(block.last_use.get());
  }
  backend_.free_host(block.range);
  bytes_ -= block.range.bytes;
  oldest->pop_front();
  return true;
}

}  // namespace vdnn::stash
