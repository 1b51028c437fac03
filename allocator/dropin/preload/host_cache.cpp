#include "allocator/dropin/preload/host_cache.h"

#include <utility>

namespace vdnn::preload {

void* HostCache::take(const HostBlock& block) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(block);
  if (found == kept_.end()) {
    return nullptr;
  }
  void* const address = found->second;
  kept_bytes_ -= block.bytes;
  kept_.erase(found);
  in_use_.emplace(address, block);
  return address;
}

void HostCache::add(void* address, const HostBlock& block) {
  const std::lock_guard lock(mutex_);
  in_use_.insert_or_assign(address, block);
}

bool HostCache::is_in_use(void* address) const {
  const std::lock_guard lock(mutex_);
  return in_use_.contains(address);
}

bool HostCache::give(void* address, bool busy) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(address);
  if (found == in_use_.end()) {
    return false;
  }
  const HostBlock block = found->second;
  in_use_.erase(found);
  if (busy || block.bytes > limit_bytes_ - kept_bytes_) {
    return false;
  }
  kept_bytes_ += block.bytes;
  kept_.emplace(block, address);
  return true;
}

std::vector<void*> HostCache::drain() {
  const std::lock_guard lock(mutex_);
  std::vector<void*> drained;
  for (const auto& [block, address] : std::exchange(kept_, {})) {
    drained.push_back(address);
  }
  kept_bytes_ = 0;
  return drained;
}

void HostCache::forget(int ordinal) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) {
    const bool gone = entry.first.ordinal == ordinal;
    kept_bytes_ -= gone ? entry.first.bytes : 0;
    return gone;
  });
  std::erase_if(in_use_, [&](const auto& entry) { return entry.second.ordinal == ordinal; });
}

}  // namespace vdnn::preload
