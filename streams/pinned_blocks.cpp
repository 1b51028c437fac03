#include "streams/pinned_blocks.h"

#include <iterator>
#include <optional>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

PinnedBlocks::PinnedBlocks(std::string owner, std::uint64_t budget_bytes, Mapping::Kind kind)
    : owner_(std::move(owner)), budget_bytes_(budget_bytes), kind_(kind) {}

AddressRange PinnedBlocks::take(std::uint64_t bytes) {
  const bool may_be_huge = kind_ == Mapping::Kind::kUntouched && bytes >= kHugePageBytes;
  std::optional<Mapping> mapping = Mapping::make(bytes, may_be_huge ? kHugePageBytes : kPageBytes, kind_);
  if (!mapping) {
    throw OutOfMemory(owner_ + ": page-locked memory of the machine",
                      {.asked = bytes, .budget = budget_bytes_});
  }
  const AddressRange range = mapping->range();
  const std::lock_guard lock(mutex_);
  blocks_.emplace(range.begin, std::move(*mapping));
  return range;
}

void PinnedBlocks::check(AddressRange block) const {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(block.begin);
  if (it == blocks_.end() || it->second.range() != block) {
    throw InvalidArgument(owner_ + ": not a block of page-locked memory (" + format_size(block.bytes) +
                          " at address " + std::to_string(block.begin) + ")");
  }
}

void PinnedBlocks::give_back(AddressRange block) {
  const std::lock_guard lock(mutex_);
  blocks_.erase(block.begin);
}

void PinnedBlocks::leave_to_driver(AddressRange block) {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(block.begin);
  it->second.release();
  blocks_.erase(it);
}

bool PinnedBlocks::contain(AddressRange range) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(range.begin);
  return after != blocks_.begin() && std::prev(after)->second.range().contains(range);
}

std::vector<AddressRange> PinnedBlocks::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<AddressRange> all;
  for (const auto& [begin, block] : blocks_) {
    all.push_back(block.range());
  }
  return all;
}

}  // namespace vdnn
