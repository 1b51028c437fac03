#include "vdnn/pinned_resource.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::size_t kAlignment = 4096;  // of Device::allocate_pinned()

std::uint64_t size_of(std::size_t bytes) {
  return std::max<std::size_t>(bytes, 1);
}

}  // namespace

void* PinnedResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (alignment > kAlignment) {
    throw InvalidArgument("page-locked memory is aligned to " + std::to_string(kAlignment) + " bytes, not " +
                          std::to_string(alignment));
  }
  const auto block = pool_.allocate_for_host(size_of(bytes));
  if (!block) {
    throw OutOfMemory("page-locked memory", pool_.shortage(size_of(bytes)));
  }
  return pointer_to<void>(block->begin);
}

void PinnedResource::do_deallocate(void* block, std::size_t bytes, std::size_t /*alignment*/) {
  pool_.free({.begin = reinterpret_cast<std::uintptr_t>(block), .bytes = size_of(bytes)},
             device_ == nullptr ? Frontier() : device_->frontier(stream_));
}

bool PinnedResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  const auto* const same = dynamic_cast<const PinnedResource*>(&other);
  return same != nullptr && &same->pool_ == &pool_ && same->device_ == device_ && same->stream_ == stream_;
}

}  // namespace vdnn
