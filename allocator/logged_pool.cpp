#include "vdnn/logged_pool.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

class LoggedPool::Impl {
 public:
  explicit Impl(StreamPool& pool) : pool_(pool) {}

  // An allocation is logged after it is made, a free before it is made: so in the log, the free of a block
  // precedes the allocation that reuses its memory. The pool is called without a lock, since on_exhausted()
  // may free blocks.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle stream, BlockLife life) {
    const auto range = pool_.allocate(bytes, stream, life);
    if (range) {
      try {
        add(*range, stream, life);
      } catch (...) {
        pool_.free(range->begin);
        throw;
      }
    }
    return range;
  }

  void free(std::uint64_t address) {
    Taken taken = take(address, std::nullopt);
    restoring(taken, [&] { pool_.free(address); });
  }
  void free(std::uint64_t address, StreamHandle stream) {
    Taken taken = take(address, stream);
    restoring(taken, [&] { pool_.free(address, stream); });
  }

  void used_on(std::uint64_t address, StreamHandle stream) {
    pool_.used_on(address, stream);
    const std::lock_guard lock(mutex_);
    if (const auto found = live_.find(address); found != live_.end()) {
      log_.events.push_back(
          {.kind = AllocationEvent::Kind::kUse, .stream = number_of(stream), .block = found->second.block});
    }
  }

  void begin_step() {
    const std::lock_guard lock(mutex_);
    step_begin_ = log_.events.size();
  }

  AllocationLog log() const {
    const std::lock_guard lock(mutex_);
    AllocationLog log = log_;
    log.step_begin = step_begin_.value_or(log.events.size());
    return log;
  }

 private:
  struct Live {
    std::uint64_t block = 0;
    std::uint32_t stream = 0;
  };

  // A block that is being freed; empty if it was not allocated through this object.
  using Taken = std::unordered_map<std::uint64_t, Live>::node_type;

  std::uint32_t number_of(StreamHandle stream) {
    return streams_.try_emplace(stream, static_cast<std::uint32_t>(streams_.size())).first->second;
  }

  void add(AddressRange range, StreamHandle stream, BlockLife life) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t number = number_of(stream);
    const auto place = live_.insert_or_assign(range.begin, Live{.block = blocks_, .stream = number}).first;
    try {
      log_.events.push_back({.kind = AllocationEvent::Kind::kAllocate,
                             .lasting = life == BlockLife::kPersistent,
                             .stream = number,
                             .block = blocks_,
                             .bytes = range.bytes});
    } catch (...) {
      live_.erase(place);
      throw;
    }
    ++blocks_;
  }

  Taken take(std::uint64_t address, std::optional<StreamHandle> stream) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end()) {
      return {};
    }
    const std::uint32_t number = stream ? number_of(*stream) : found->second.stream;
    log_.events.push_back(
        {.kind = AllocationEvent::Kind::kFree, .stream = number, .block = found->second.block});
    return live_.extract(found);
  }

  // If `free` throws, the block is in use and in the log as before.
  template <class Free>
  void restoring(Taken& taken, const Free& free) {
    try {
      free();
    } catch (...) {
      if (!taken.empty()) {
        const std::lock_guard lock(mutex_);
        const auto freed =
            std::find_if(log_.events.rbegin(), log_.events.rend(), [&](const AllocationEvent& event) {
              return event.kind == AllocationEvent::Kind::kFree && event.block == taken.mapped().block;
            });
        log_.events.erase(std::next(freed).base());
        live_.insert(std::move(taken));
      }
      throw;
    }
  }

  StreamPool& pool_;
  mutable std::mutex mutex_;  // guards the members below
  AllocationLog log_;
  std::optional<std::size_t> step_begin_;
  std::uint64_t blocks_ = 0;
  std::unordered_map<StreamHandle, std::uint32_t> streams_;
  std::unordered_map<std::uint64_t, Live> live_;
};

LoggedPool::LoggedPool(StreamPool& pool) : impl_(std::make_unique<Impl>(pool)) {}
LoggedPool::~LoggedPool() = default;

std::optional<AddressRange> LoggedPool::allocate(std::uint64_t bytes, StreamHandle stream, BlockLife life) {
  return impl_->allocate(bytes, stream, life);
}
void LoggedPool::free(std::uint64_t address) {
  impl_->free(address);
}
void LoggedPool::free(std::uint64_t address, StreamHandle stream) {
  impl_->free(address, stream);
}
void LoggedPool::used_on(std::uint64_t address, StreamHandle stream) {
  impl_->used_on(address, stream);
}
void LoggedPool::begin_step() {
  impl_->begin_step();
}
AllocationLog LoggedPool::log() const {
  return impl_->log();
}

}  // namespace vdnn
