#pragma once
// The further readers of each block in use: the streams named by StreamPool::used_on(), except its owner.

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/block_table.h"
#include "allocator/pool_stream.h"

namespace vdnn {

// Guarded by the pool's lock.
class BlockReaders {
 public:
  // Adds a reader, unless the block has it already.
  void add(const BlockRecord& block, PoolStream& reader) {
    std::vector<PoolStream*>& readers = readers_[&block];
    if (std::ranges::find(readers, &reader) == readers.end()) {
      readers.push_back(&reader);
      ++reader.readings;
    }
  }
  // The block must have readers.
  const std::vector<PoolStream*>& of(const BlockRecord& block) const { return readers_.at(&block); }
  // Removes the block's readers and returns them.
  std::vector<PoolStream*> remove_all(const BlockRecord& block) {
    auto entry = readers_.extract(&block);
    if (entry.empty()) {
      return {};
    }
    for (PoolStream* const reader : entry.mapped()) {
      --reader->readings;
    }
    return std::move(entry.mapped());
  }

 private:
  std::unordered_map<const BlockRecord*, std::vector<PoolStream*>> readers_;
};

}  // namespace vdnn
