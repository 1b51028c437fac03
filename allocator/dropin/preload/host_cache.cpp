#include "allocator/dropin/preload/host_cache.h"

#include <algorithm>

namespace vdnn::preload {

void* HostCache::take(const HostBlock& block) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(block);
  if (found == kept_.end()) {
    return nullptr;
  }
  void* const address = found->address;
  kept_bytes_ -= block.bytes;
  in_use_.insert(kept_.extract(found));
  return address;
}

void HostCache::add(void* address, const HostBlock& block) {
  const std::lock_guard lock(mutex_);
  if (const auto before = in_use_.find(address); before != in_use_.end()) {
    in_use_.erase(before);
  }
  in_use_.insert({.address = address, .block = block});
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
  if (busy || found->block.bytes > limit_bytes_ - kept_bytes_) {
    in_use_.erase(found);
    return false;
  }
  kept_bytes_ += found->block.bytes;
  kept_.insert(in_use_.extract(found));
  return true;
}

std::optional<HostMemory> HostCache::release(std::optional<int> ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      kept_, [&](const HostMemory& memory) { return !ordinal || memory.block.ordinal == *ordinal; });
  if (found == kept_.end()) {
    return std::nullopt;
  }
  const HostMemory memory = kept_.extract(found).value();
  kept_bytes_ -= memory.block.bytes;
  return memory;
}

void HostCache::forget(int ordinal) {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_use_, [&](const HostMemory& memory) { return memory.block.ordinal == ordinal; });
}

}  // namespace vdnn::preload
