#include "vdnn/stream_pool.h"

#include <array>
#include <bit>
#include <mutex>
#include <utility>

#include "allocator/pool_blocks.h"
#include "allocator/pool_history.h"
#include "allocator/pool_memory.h"
#include "allocator/pool_report.h"
#include "allocator/pool_request.h"
#include "allocator/stream_caches.h"
#include "allocator/stream_order.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr int kWaitsAtEnd = 8;
constexpr std::size_t kMaxHistory = std::size_t{1} << 24;

void check(const PoolBackendProperties& backend, const StreamPoolOptions& options) {
  const auto require = [&](bool kept, const std::string& what) {
    if (!kept) {
      throw InvalidArgument(backend.name + ": " + what);
    }
  };
  require(std::has_single_bit(backend.granule_bytes) && std::has_single_bit(backend.alignment_bytes) &&
              backend.alignment_bytes <= backend.granule_bytes,
          "granule and alignment must be powers of two, the alignment not above the granule");
  const std::uint64_t budget = options.budget_bytes == 0 ? backend.memory_bytes : options.budget_bytes;
  require(budget >= backend.granule_bytes, "a budget of " + format_size(budget) +
                                               " is less than one granule of " +
                                               format_size(backend.granule_bytes));
  require(options.history_events <= kMaxHistory,
          "a history of " + std::to_string(options.history_events) + " events is too long");
  require(options.small_bytes > 0 &&
              SizeClasses(backend.alignment_bytes).class_of(options.small_bytes) < SizeClasses::kClasses,
          "small blocks of up to " + format_size(options.small_bytes) + " would have too many size classes");
}

}  // namespace

std::string_view to_string(BlockKind kind) {
  constexpr std::array<std::string_view, kBlockKinds> kNames{"small", "large", "persistent"};
  return kNames.at(static_cast<std::size_t>(kind));
}

// Decides which part serves a call, and under which lock.
class StreamPool::Impl {
 public:
  Impl(PoolBackend& backend, const StreamPoolOptions& options)
      : order_(backend, options.ends_are_told, [this](PoolStream& stream) { caches_.flush(stream); }),
        backend_(backend),
        options_(options),
        rounding_(backend.properties(), options),
        memory_(backend, options_, order_),
        blocks_(name(), memory_, order_, peaks_),
        caches_(options.cache_bytes, order_, memory_, blocks_, peaks_),
        report_(rounding_, order_, memory_, blocks_, peaks_) {
    if (options.history_events > 0) {
      history_.emplace(options.history_events, options.stack_traces);
    }
  }

  ~Impl() {
    if (memory_.reserved().current == 0) {
      return;  // there is nothing that work could use
    }
    // Tries several times, since a call that the backend refuses has not waited. A GPU that refuses all of
    // them no longer runs work.
    for (int i = 0; i < kWaitsAtEnd; ++i) {
      try {
        if (!order_.wait_for_all_users()) {
          memory_.leave_to_backend();
        }
        break;
      } catch (...) {
        continue;
      }
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // --- allocation ------------------------------------------------------------------------------------------

  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle handle, BlockLife life) {
    const PoolRequest request = rounding_.request(bytes, life);
    if (const RecalledStream recalled = order_.recall(handle); recalled.stream != nullptr) {
      if (const auto block = take_cached(request, *recalled.stream, [&] { return recalled.is_still(); })) {
        return block;
      }
    }
    std::unique_lock lock(mutex_);
    return allocate_locked(request, lock, [&]() -> PoolStream& { return order_.at(handle); });
  }

  std::optional<AddressRange> allocate_ready(std::uint64_t bytes, BlockLife life) {
    const PoolRequest request = rounding_.request(bytes, life);
    if (const auto block = take_cached(request, order_.host(), [] { return true; })) {
      return block;
    }
    std::unique_lock lock(mutex_);
    return allocate_locked(request, lock, [this]() -> PoolStream& { return order_.host(); });
  }

  // --- free ------------------------------------------------------------------------------------------------

  // The owner of a block in use is the stream that it was allocated for.
  void free(std::uint64_t address) {
    BlockRecord& record = blocks_.claim(address);
    PoolStream* const owner = record.owner;
    free_claimed(record, address, owner, [&] { return blocks_.last_use(record, owner); });
  }

  // If `handle` does not mean the owner, it must be looked up again under the pool's lock: it may mean
  // another stream by then.
  void free(std::uint64_t address, StreamHandle handle) {
    PoolStream* stream = order_.recall(handle).stream;
    if (stream == nullptr) {
      const std::lock_guard lock(mutex_);
      stream = &order_.at(handle);
    }
    BlockRecord& record = blocks_.claim(address);
    free_claimed(record, address, stream, [&] {
      return blocks_.last_use(record, stream == record.owner ? stream : &order_.at(handle));
    });
  }

  void free_idle(std::uint64_t address) {
    BlockRecord& record = blocks_.claim(address);
    PoolStream* const owner = record.owner;
    free_claimed(record, address, owner == &order_.host() ? owner : nullptr,
                 [&] { return blocks_.last_use(record, nullptr); });
  }

  void free_unordered(std::uint64_t address) {
    BlockRecord& record = blocks_.claim(address);
    free_claimed(record, address, nullptr, [&] {
      const Point last_use = order_.freed_by_unknown();
      ++calls_.freed_unordered;
      return Frontier(last_use);
    });
  }

  void used_on(std::uint64_t address, StreamHandle handle) {
    const std::lock_guard lock(mutex_);
    blocks_.add_reader(address, order_.at(handle));
  }

  // --- look-up ---------------------------------------------------------------------------------------------

  bool owns(std::uint64_t address) const { return memory_.contains(address); }

  std::optional<AddressRange> find(std::uint64_t address) const {
    std::optional<AddressRange> range;
    look_at(address, [&](const BlockRecord& record) {
      range = AddressRange{.begin = address, .bytes = record.requested};
    });
    return range;
  }

  std::optional<StreamHandle> stream_of(std::uint64_t address) const {
    std::optional<StreamHandle> handle;
    look_at(address, [&](const BlockRecord& record) {
      if (record.owner != &order_.host()) {
        handle = record.owner->handle.load();
      }
    });
    return handle;
  }

  // --- streams, memory and reports, each by its part -------------------------------------------------------

  void forget(StreamHandle handle) {
    const std::lock_guard lock(mutex_);
    if (PoolStream* const stream = order_.known(handle)) {
      order_.end(*stream);
    }
  }

  bool reserve(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return memory_.reserve(bytes);
  }
  std::uint64_t budget_bytes() const { return memory_.budget_bytes(); }
  std::uint64_t trim(std::uint64_t keep_bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t before = memory_.reserved().current;
    caches_.flush_all();
    memory_.trim(keep_bytes);
    return before - memory_.reserved().current;
  }

  MemoryShortage shortage(std::uint64_t asked) const {
    const std::lock_guard lock(mutex_);
    return report_.shortage(asked);
  }
  StreamPoolStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return report_.statistics(calls_);
  }
  StreamPoolStatistics statistics(StreamHandle handle) const {
    const std::lock_guard lock(mutex_);
    return report_.statistics_of(handle);
  }
  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    report_.reset_peaks();
  }
  std::vector<PoolPiece> snapshot() const {
    const std::lock_guard lock(mutex_);
    return report_.pieces();
  }
  std::vector<PoolEvent> history() const { return history_ ? history_->events() : std::vector<PoolEvent>(); }

  PoolBackend& backend() const { return backend_; }
  const std::string& name() const {
    return options_.name.empty() ? backend_.properties().name : options_.name;
  }

 private:
  template <class IsStill>
  std::optional<AddressRange> take_cached(const PoolRequest& request, PoolStream& stream,
                                          const IsStill& is_still) {
    const std::optional<AddressRange> block = caches_.take(request, stream, is_still);
    if (block) {
      note(PoolEvent::Kind::kAllocated, *block, stream);
    }
    return block;
  }

  // The caller holds `lock`, the pool's. `stream_now()` returns the stream that the request is for. It is
  // called again after on_exhausted(), since the handle may mean another stream by then.
  template <class StreamNow>
  std::optional<AddressRange> allocate_locked(const PoolRequest& request, std::unique_lock<std::mutex>& lock,
                                              const StreamNow& stream_now) {
    PoolStream* stream = &stream_now();
    while (request.bytes <= memory_.budget_bytes()) {
      if (const auto block = blocks_.allocate(request, rounding_.block_bytes(request), *stream,
                                              [this] { return caches_.flush_all(); })) {
        note(PoolEvent::Kind::kAllocated, *block, *stream);
        return block;
      }
      if (!options_.on_exhausted) {
        break;
      }
      ++calls_.exhausted;
      lock.unlock();
      const bool again = options_.on_exhausted(request.bytes);
      lock.lock();
      stream = &stream_now();
      if (!again) {
        break;
      }
    }
    ++calls_.refused;
    note(PoolEvent::Kind::kRefused, {.begin = 0, .bytes = request.bytes}, *stream);
    return std::nullopt;
  }

  // Frees a claimed block in the order of `stream`, or of no stream if `stream` is null. If the block is not
  // put into its owner's cache, `last_use()` is called under the pool's lock. The history notes the free
  // first: once the block is free, another thread may allocate it.
  template <class LastUse>
  void free_claimed(BlockRecord& record, std::uint64_t address, PoolStream* stream, const LastUse& last_use) {
    const AddressRange range{.begin = address, .bytes = record.requested};
    PoolStream& owner = *record.owner;
    note(PoolEvent::Kind::kFreed, range, owner);
    if (stream == &owner && cache(record)) {
      return;
    }
    try {
      const std::lock_guard lock(mutex_);
      memory_.shrink_to_high_water();
      blocks_.free(record, last_use());
    } catch (...) {
      note(PoolEvent::Kind::kAllocated, range, owner);
      PoolBlocks::disclaim(record);
      throw;
    }
  }

  bool cache(BlockRecord& record) {
    BlockRecord* evicted = nullptr;
    const bool is_cached = caches_.put(record, evicted);
    if (evicted != nullptr) {
      const std::lock_guard lock(mutex_);
      caches_.release(evicted);
    }
    return is_cached;
  }

  // Calls visit(record) for the block in use that begins at `address`, if there is one, under its owner's
  // lock.
  template <class Visit>
  void look_at(std::uint64_t address, const Visit& visit) const {
    const std::lock_guard lock(mutex_);
    const BlockRecord* const record = blocks_.find(address);
    if (record == nullptr) {
      return;
    }
    const std::lock_guard of_owner(record->owner->mutex);
    if (PoolBlocks::is_in_use(*record)) {
      visit(*record);
    }
  }

  void note(PoolEvent::Kind kind, AddressRange range, const PoolStream& stream) {
    if (history_) {
      history_->add(kind, range, stream.id);
    }
  }

  mutable StreamOrder order_;  // guarded by mutex_, too
  PoolBackend& backend_;
  const StreamPoolOptions options_;
  const RequestRounding rounding_;
  PoolPeaks peaks_;
  std::optional<PoolHistory> history_;

  mutable std::mutex mutex_;  // guards the members below; their headers list the calls that need no lock
  PoolMemory memory_;
  PoolBlocks blocks_;
  StreamCaches caches_;
  PoolReport report_;
  CallCounters calls_;
};

StreamPool::StreamPool(PoolBackend& backend, const StreamPoolOptions& options) {
  check(backend.properties(), options);
  impl_ = std::make_unique<Impl>(backend, options);
}

StreamPool::~StreamPool() = default;

std::optional<AddressRange> StreamPool::allocate(std::uint64_t bytes, StreamHandle stream, BlockLife life) {
  return impl_->allocate(bytes, stream, life);
}

std::optional<AddressRange> StreamPool::allocate_ready(std::uint64_t bytes, BlockLife life) {
  return impl_->allocate_ready(bytes, life);
}

void StreamPool::free(std::uint64_t address) {
  impl_->free(address);
}

void StreamPool::free(std::uint64_t address, StreamHandle stream) {
  impl_->free(address, stream);
}

void StreamPool::free_idle(std::uint64_t address) {
  impl_->free_idle(address);
}

void StreamPool::free_unordered(std::uint64_t address) {
  impl_->free_unordered(address);
}

void StreamPool::used_on(std::uint64_t address, StreamHandle stream) {
  impl_->used_on(address, stream);
}

bool StreamPool::owns(std::uint64_t address) const {
  return impl_->owns(address);
}

std::optional<AddressRange> StreamPool::find(std::uint64_t address) const {
  return impl_->find(address);
}

std::optional<StreamHandle> StreamPool::stream_of(std::uint64_t address) const {
  return impl_->stream_of(address);
}

void StreamPool::forget(StreamHandle stream) {
  impl_->forget(stream);
}

bool StreamPool::reserve(std::uint64_t bytes) {
  return impl_->reserve(bytes);
}

std::uint64_t StreamPool::budget_bytes() const {
  return impl_->budget_bytes();
}

std::uint64_t StreamPool::trim(std::uint64_t keep_bytes) {
  return impl_->trim(keep_bytes);
}

MemoryShortage StreamPool::shortage(std::uint64_t asked) const {
  return impl_->shortage(asked);
}

StreamPoolStatistics StreamPool::statistics() const {
  return impl_->statistics();
}

StreamPoolStatistics StreamPool::statistics(StreamHandle stream) const {
  return impl_->statistics(stream);
}

void StreamPool::reset_peaks() {
  impl_->reset_peaks();
}

std::vector<PoolPiece> StreamPool::snapshot() const {
  return impl_->snapshot();
}

std::vector<PoolEvent> StreamPool::history() const {
  return impl_->history();
}

const std::string& StreamPool::name() const {
  return impl_->name();
}

PoolBackend& StreamPool::backend() const {
  return impl_->backend();
}

}  // namespace vdnn
