#include "allocator/stream_caches.h"

#include <new>
#include <vector>

namespace vdnn {

void StreamCaches::release(BlockRecord* evicted) {
  while (evicted != nullptr) {
    BlockRecord& record = *std::exchange(evicted, evicted->next);
    PoolStream& owner = *record.owner;
    try {
      blocks_.release(record, Frontier(record.freed_at()));
    } catch (const std::bad_alloc&) {
      const std::lock_guard lock(owner.mutex);
      owner.cache.push(record);
      order_.note_cached(owner);
    }
  }
}

bool StreamCaches::flush(PoolStream& stream) {
  const std::lock_guard lock(stream.mutex);
  bool any = false;
  while (BlockRecord* const record = stream.cache.pop_any()) {
    try {
      blocks_.release(*record, Frontier(record->freed_at()));
    } catch (...) {
      stream.cache.push(*record);
      order_.note_cached(stream);
      throw;
    }
    any = true;
  }
  stream.tally.settle(peaks_);
  return any;
}

bool StreamCaches::flush_all() {
  const std::vector<PoolStream*>& cached = order_.take_cached();
  bool any = false;
  for (std::size_t i = 0; i < cached.size(); ++i) {
    try {
      any = flush(*cached[i]) || any;
    } catch (...) {
      for (std::size_t left = i + 1; left < cached.size(); ++left) {
        const std::lock_guard lock(cached[left]->mutex);
        order_.note_cached(*cached[left]);
      }
      throw;
    }
  }
  return any;
}

}  // namespace vdnn
