#include "vdnn/stream_pool.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <mutex>
#include <new>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "allocator/block_table.h"
#include "allocator/pool_history.h"
#include "allocator/pool_memory.h"
#include "allocator/pool_tally.h"
#include "allocator/size_classes.h"
#include "allocator/stream_order.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// A block that enters a full cache pushes out so many at most, so that a free takes a constant time.
constexpr int kMaxEvictions = 8;
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
          "small blocks of " + format_size(options.small_bytes) + " are too many sizes");
}

}  // namespace

std::string_view to_string(BlockKind kind) {
  constexpr std::array<std::string_view, kBlockKinds> kNames{"small", "large", "persistent"};
  return kNames.at(static_cast<std::size_t>(kind));
}

class StreamPool::Impl {
 public:
  Impl(PoolBackend& backend, const StreamPoolOptions& options)
      : backend_(backend),
        options_(options),
        classes_(backend.properties().alignment_bytes),
        small_bytes_(std::min(options.small_bytes, backend.properties().granule_bytes)),
        order_(backend, options.ends_are_told, [this](PoolStream& stream) { flush(stream); }),
        memory_(backend, options_, order_) {
    if (options.history_events > 0) {
      history_.emplace(options.history_events, options.stack_traces);
    }
  }

  ~Impl() {
    if (memory_.reserved().current == 0) {
      return;  // nothing that work could use
    }
    // Several times: a call that was refused has not waited. On a GPU that refuses all of them no work goes
    // on.
    for (int i = 0; i < kWaitsAtEnd; ++i) {
      try {
        if (!wait_for_all()) {
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

  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle handle, BlockLife life) {
    const Request request(bytes, *this, life);
    if (const StreamOrder::Found found = order_.find(handle); found.stream != nullptr) {
      if (const auto block = take_from_cache(request, *found.stream, [&] { return found.is_still(); })) {
        return block;
      }
    }
    std::unique_lock lock(mutex_);
    return allocate_locked(request, lock, [&]() -> PoolStream& { return order_.at(handle); });
  }

  std::optional<AddressRange> allocate_ready(std::uint64_t bytes, BlockLife life) {
    const Request request(bytes, *this, life);
    if (const auto block = take_from_cache(request, order_.host(), [] { return true; })) {
      return block;
    }
    std::unique_lock lock(mutex_);
    return allocate_locked(request, lock, [this]() -> PoolStream& { return order_.host(); });
  }

  // As long as a block is in use its owner is the stream that it was allocated for.
  void free(std::uint64_t address) {
    BlockRecord& record = claim(address);
    PoolStream* const owner = record.owner;
    free_claimed(record, address, owner, [&] { return uses_of(record, owner); });
  }

  // Unless it is the owner, the stream may be another one by when the pool is locked.
  void free(std::uint64_t address, StreamHandle handle) {
    PoolStream* stream = order_.find(handle).stream;
    if (stream == nullptr) {
      const std::lock_guard lock(mutex_);
      stream = &order_.at(handle);
    }
    BlockRecord& record = claim(address);
    free_claimed(record, address, stream,
                 [&] { return uses_of(record, stream == record.owner ? stream : &order_.at(handle)); });
  }

  void free_idle(std::uint64_t address) {
    BlockRecord& record = claim(address);
    PoolStream* const owner = record.owner;
    free_claimed(record, address, owner == &order_.host() ? owner : nullptr,
                 [&] { return uses_of(record, nullptr); });
  }

  void free_unordered(std::uint64_t address) {
    BlockRecord& record = claim(address);
    free_claimed(record, address, nullptr, [&] {
      const Point uses = order_.freed_by_unknown();
      ++freed_unordered_;
      return Frontier(uses);
    });
  }

  void used_on(std::uint64_t address, StreamHandle handle) {
    const std::lock_guard lock(mutex_);
    PoolStream& reader = order_.at(handle);
    BlockRecord& record = record_at(address);
    if (!is_in_use(record)) {
      refuse(address);
    }
    if (record.owner == &reader) {
      return;
    }
    std::vector<PoolStream*>& readers = readers_[&record];
    if (std::ranges::find(readers, &reader) == readers.end()) {
      readers.push_back(&reader);
      ++reader.readings;
    }
    record.change(record.offset(), BlockRecord::kInUse, BlockRecord::kShared);
  }

  bool owns(std::uint64_t address) const { return memory_.contains(address); }

  std::optional<AddressRange> find(std::uint64_t address) const {
    const std::lock_guard lock(mutex_);
    BlockRecord* const record = record_of(address);
    if (record == nullptr) {
      return std::nullopt;
    }
    const std::lock_guard of_owner(record->owner->mutex);
    if (!is_in_use(*record)) {
      return std::nullopt;
    }
    return AddressRange{.begin = address, .bytes = record->requested};
  }

  std::optional<StreamHandle> stream_of(std::uint64_t address) const {
    const std::lock_guard lock(mutex_);
    BlockRecord* const record = record_of(address);
    if (record == nullptr) {
      return std::nullopt;
    }
    const std::lock_guard of_owner(record->owner->mutex);
    const bool has_one = is_in_use(*record) && record->owner != &order_.host();
    return has_one ? std::optional(record->owner->handle.load()) : std::nullopt;
  }

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
    flush_caches();
    memory_.trim(keep_bytes);
    return before - memory_.reserved().current;
  }

  MemoryShortage shortage(std::uint64_t asked) const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t small = memory_.largest_free_block_bytes(BlockKind::kSmall);
    const std::uint64_t large = memory_.largest_free_block_bytes(BlockKind::kLarge);
    const std::uint64_t persistent = memory_.largest_free_block_bytes(BlockKind::kPersistent);
    const std::uint64_t in_use = sum_of(kBlockKinds).allocated.current;
    const std::uint64_t committed = memory_.reserved().current;
    return {.asked = asked,
            .in_use = in_use,
            .cached = committed - in_use,
            .largest_free_block = std::max({small, large, persistent}),
            .budget = memory_.budget_bytes(),
            // What small blocks leave free is for small blocks alone.
            .would_have_fitted = std::max({memory_.budget_bytes() - committed + memory_.free_granule_bytes(),
                                           std::min(classes_.whole_class(small), small_bytes_),
                                           large > small_bytes_ ? large : 0})};
  }

  StreamPoolStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    StreamPoolStatistics all;
    for (const BlockKind each : kAllBlockKinds) {
      const auto kind = static_cast<std::size_t>(each);
      all.kinds.at(kind) = sum_of(kind);
      all.kinds.at(kind).active = active_.at(kind);
      all.kinds.at(kind).reserved = memory_.reserved(each);
    }
    all.all = sum_of(kBlockKinds);
    all.all.active = active_.back();
    all.all.reserved = memory_.reserved();
    all.reused_from_cache = order_.retired_reused();
    order_.for_each([&](PoolStream& stream) {
      const std::lock_guard of_stream(stream.mutex);
      all.reused_from_cache += stream.reused_from_cache;
    });
    all.reused_at_once = reused_at_once_;
    all.reused_after_wait = reused_after_wait_;
    all.growths = memory_.growths();
    all.events_recorded = order_.counters().events_recorded;
    all.stream_waits = order_.counters().stream_waits;
    all.host_waits = order_.counters().host_waits;
    all.device_waits = order_.counters().device_waits;
    all.events_held = order_.counters().events_held;
    all.streams_tracked = order_.tracked();
    all.streams_visited = order_.counters().streams_visited;
    all.retries = memory_.retries() + asked_again_;
    all.failures = failures_;
    all.freed_unordered = freed_unordered_;
    return all;
  }

  StreamPoolStatistics statistics(StreamHandle handle) const {
    const std::lock_guard lock(mutex_);
    StreamPoolStatistics of_stream;
    if (PoolStream* const stream = order_.known(handle)) {
      const std::lock_guard lock_of_stream(stream->mutex);
      const auto figures = [&](std::size_t kind) {
        const StreamTally::Figures& found = stream->tally.of(kind);
        return PoolFigures{.blocks = found.blocks.figure(),
                           .requested = found.requested.figure(),
                           .allocated = found.allocated.figure()};
      };
      for (std::size_t kind = 0; kind < kBlockKinds; ++kind) {
        of_stream.kinds.at(kind) = figures(kind);
      }
      of_stream.all = figures(kBlockKinds);
      of_stream.reused_from_cache = stream->reused_from_cache;
    }
    return of_stream;
  }

  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    order_.for_each([&](PoolStream& stream) {
      const std::lock_guard of_stream(stream.mutex);
      stream.tally.settle(peaks_);
      stream.tally.reset_peaks();
    });
    for (BlockFigures<SumOfLeases>& each : peaks_) {
      each.blocks.reset_peak();
      each.requested.reset_peak();
      each.allocated.reset_peak();
    }
    memory_.reset_peaks();
    for (PoolFigure& figure : active_) {
      figure.peak = figure.current;
    }
  }

  std::vector<PoolPiece> snapshot() const {
    const std::lock_guard lock(mutex_);
    std::vector<PoolPiece> pieces = memory_.pieces();
    for (PoolPiece& piece : pieces) {
      if (piece.state == PoolPiece::State::kInUse) {
        describe(piece);
      }
    }
    return pieces;
  }

  PoolBackend& backend() const { return backend_; }
  const std::string& name() const {
    return options_.name.empty() ? backend_.properties().name : options_.name;
  }
  std::vector<PoolEvent> history() const { return history_ ? history_->events() : std::vector<PoolEvent>(); }

 private:
  // False: a capture forbids it, and some work may go on.
  bool wait_for_all() {
    if (!order_.any_is_captured()) {
      try {
        backend_.synchronize_all();
        return true;
      } catch (const CaptureConflict&) {  // NOLINT(bugprone-empty-catch): of a stream that is not known
      }
    }
    return order_.wait_beside_captures();
  }

  // --- finding ---------------------------------------------------------------------------------------------

  static bool is_in_use(const BlockRecord& record) {
    return record.state() == BlockRecord::kInUse || record.state() == BlockRecord::kShared;
  }

  [[noreturn]] void refuse(std::uint64_t address) const {
    throw InvalidArgument(name() + ": no block in use begins at address " + std::to_string(address) +
                          (owns(address) ? ", which is the pool's" : ", which is not the pool's"));
  }

  // Null where none ever began at `address`.
  BlockRecord* record_of(std::uint64_t address) const {
    return memory_.contains(address) ? memory_.table().find(memory_.offset_of(address)) : nullptr;
  }
  BlockRecord& record_at(std::uint64_t address) {
    BlockRecord* const record = record_of(address);
    if (record == nullptr) {
      refuse(address);
    }
    return *record;
  }

  // The block in use that begins at `address`; from here on the caller's alone.
  BlockRecord& claim(std::uint64_t address) {
    BlockRecord& record = record_at(address);
    const std::uint64_t offset = memory_.offset_of(address);
    if (!record.change(offset, BlockRecord::kInUse, BlockRecord::kBusy) && !claim_shared(record, offset)) {
      refuse(address);
    }
    return record;
  }
  bool claim_shared(BlockRecord& record, std::uint64_t offset) {
    if (!record.change(offset, BlockRecord::kShared, BlockRecord::kBusy)) {
      return false;
    }
    record.has_readers = true;
    return true;
  }

  // --- the caches ------------------------------------------------------------------------------------------

  BlockKind kind_of(std::uint64_t asked, BlockLife life) const {
    if (asked > small_bytes_) {
      return BlockKind::kLarge;
    }
    return life == BlockLife::kPersistent ? BlockKind::kPersistent : BlockKind::kSmall;
  }

  struct Request {
    Request(std::uint64_t bytes_, const Impl& pool, BlockLife life)
        : bytes(std::max<std::uint64_t>(bytes_, 1)),
          kind(pool.kind_of(bytes, life)),
          size_class(kind == BlockKind::kSmall ? pool.classes_.class_of(bytes) : SizeClasses::kClasses) {}

    const std::uint64_t bytes;
    const BlockKind kind;
    const unsigned size_class;  // of small blocks
  };

  // Empty where there is none, or where `is_it`, under the stream's lock, says that it is another one by now.
  template <class IsIt>
  std::optional<AddressRange> take_from_cache(const Request& request, PoolStream& stream, const IsIt& is_it) {
    if (request.kind != BlockKind::kSmall) {
      return std::nullopt;
    }
    AddressRange range;
    {
      const std::lock_guard lock(stream.mutex);
      BlockRecord* const record = is_it() ? stream.cache.pop(request.size_class) : nullptr;
      if (record == nullptr) {
        return std::nullopt;
      }
      record->requested = request.bytes;
      stream.tally.add(BlockKind::kSmall, request.bytes, record->bytes, peaks_);
      stream.used = true;
      ++stream.reused_from_cache;
      range = memory_.at(record->offset(), request.bytes);
      record->become(BlockRecord::kInUse);
    }
    note(PoolEvent::Kind::kAllocated, range, stream);
    return range;
  }

  // `stream`: in whose order; null: of none that keeps blocks. `uses`, called under the pool's lock: after
  // which points it is free, where it is not for the cache of its owner. From the moment on that it is free
  // somebody else may have it: that it is freed is noted before.
  template <class Uses>
  void free_claimed(BlockRecord& record, std::uint64_t address, PoolStream* stream, const Uses& uses) {
    const AddressRange range{.begin = address, .bytes = record.requested};
    PoolStream& owner = *record.owner;
    note(PoolEvent::Kind::kFreed, range, owner);
    if (stream == &owner && give_to_cache(record, owner)) {
      return;
    }
    try {
      const std::lock_guard lock(mutex_);
      memory_.sink_to_mark();
      free_beside_cache(record, uses());
    } catch (...) {
      note(PoolEvent::Kind::kAllocated, range, owner);
      const bool has_readers = std::exchange(record.has_readers, false);
      record.become(has_readers ? BlockRecord::kShared : BlockRecord::kInUse);
      throw;
    }
  }

  void note(PoolEvent::Kind kind, AddressRange range, const PoolStream& stream) {
    if (history_) {
      history_->add(kind, range, stream.id);
    }
  }

  // False where the block is none for the cache of `stream`, its owner.
  bool give_to_cache(BlockRecord& record, PoolStream& stream) {
    const bool can_be = record.size_class < SizeClasses::kClasses && record.bytes <= options_.cache_bytes;
    if (!can_be || record.has_readers || stream.of_thread) {
      return false;
    }
    BlockRecord* evicted = nullptr;
    bool taken = false;
    {
      const std::lock_guard lock(stream.mutex);
      taken = stream.keeps_cache && make_room(stream, record, evicted);
      if (taken) {
        const Point freed_at = stream.next_point();
        record.freed_number = freed_at.stream;
        record.freed_count = freed_at.count;
        stream.used = true;
        order_.has_freed(stream);
        order_.has_cached(stream);
        stream.tally.remove(BlockKind::kSmall, record.requested, record.bytes);
        record.become(BlockRecord::kCached);
        stream.cache.push(record);
      }
    }
    if (evicted != nullptr) {
      release_evicted(stream, evicted);
    }
    return taken;
  }

  // Whether there is room for `record`; what was pushed out for it is chained to `evicted`.
  bool make_room(PoolStream& stream, const BlockRecord& record, BlockRecord*& evicted) {
    const std::uint64_t limit = options_.cache_bytes - record.bytes;
    for (int i = 0; stream.cache.bytes() > limit; ++i) {
      BlockRecord* const other = i < kMaxEvictions ? stream.cache.pop_any(record.size_class) : nullptr;
      if (other == nullptr) {
        return false;
      }
      other->next = std::exchange(evicted, other);
      stream.tally.settle(peaks_);
    }
    return true;
  }

  void release_evicted(PoolStream& stream, BlockRecord* evicted) {
    const std::lock_guard lock(mutex_);
    while (evicted != nullptr) {
      BlockRecord& record = *std::exchange(evicted, evicted->next);
      try {
        release(record, Frontier(record.freed_at()));
      } catch (const std::bad_alloc&) {
        const std::lock_guard of_stream(stream.mutex);
        stream.cache.push(record);
        order_.has_cached(stream);
      }
    }
  }

  // Whether there was anything.
  bool flush(PoolStream& stream) {
    const std::lock_guard lock(stream.mutex);
    bool any = false;
    while (BlockRecord* const record = stream.cache.pop_any()) {
      try {
        release(*record, Frontier(record->freed_at()));
      } catch (...) {
        stream.cache.push(*record);
        order_.has_cached(stream);
        throw;
      }
      any = true;
    }
    stream.tally.settle(peaks_);
    return any;
  }
  bool flush_caches() {
    const std::vector<PoolStream*>& cached = order_.take_cached();
    bool any = false;
    for (std::size_t i = 0; i < cached.size(); ++i) {
      try {
        any = flush(*cached[i]) || any;
      } catch (...) {
        for (std::size_t left = i + 1; left < cached.size(); ++left) {
          const std::lock_guard lock(cached[left]->mutex);
          order_.has_cached(*cached[left]);
        }
        throw;
      }
    }
    return any;
  }

  // --- under the pool's lock: blocks -----------------------------------------------------------------------

  // `stream_now`: for whom; asked again after the program was, since it may be another one then. `lock` is
  // the pool's.
  template <class StreamNow>
  std::optional<AddressRange> allocate_locked(const Request& request, std::unique_lock<std::mutex>& lock,
                                              const StreamNow& stream_now) {
    PoolStream* stream = &stream_now();
    while (request.bytes <= memory_.budget_bytes()) {
      if (const auto block = allocate_beside_cache(request, *stream)) {
        note(PoolEvent::Kind::kAllocated, *block, *stream);
        return block;
      }
      if (!options_.on_exhausted) {
        break;
      }
      ++asked_again_;
      lock.unlock();
      const bool again = options_.on_exhausted(request.bytes);
      lock.lock();
      stream = &stream_now();
      if (!again) {
        break;
      }
    }
    ++failures_;
    note(PoolEvent::Kind::kRefused, {.begin = 0, .bytes = request.bytes}, *stream);
    return std::nullopt;
  }

  std::optional<AddressRange> allocate_beside_cache(const Request& request, PoolStream& stream) {
    const std::uint64_t asked = request.bytes;
    BlockKind kind = request.kind;
    const std::uint64_t bytes =
        kind == BlockKind::kSmall ? classes_.bytes_of(request.size_class) : round_up(asked, memory_.unit());
    const std::uint64_t growths = memory_.growths();
    std::optional<Tlsf::Block> block =
        memory_.take(kind, bytes, order_.knowledge(stream), [this] { return flush_caches(); });
    if (!block) {
      return std::nullopt;
    }
    const std::uint64_t waits = order_.counters().stream_waits + order_.counters().host_waits;
    BlockRecord& record = make_ready(asked, kind, *block, stream);
    kind = record.kind;
    if (memory_.growths() == growths) {
      const bool waited = order_.counters().stream_waits + order_.counters().host_waits != waits;
      ++(waited ? reused_after_wait_ : reused_at_once_);
    }
    record.owner = &stream;
    record.bytes = block->bytes;
    record.requested = asked;
    record.size_class = kind == BlockKind::kSmall ? request.size_class : SizeClasses::kClasses;
    record.freed_count = 0;
    record.has_readers = false;
    record.tagged.store(BlockRecord::tag(block->offset, BlockRecord::kInUse), std::memory_order_release);
    memory_.table().set(block->offset, &record);
    add(active_.at(static_cast<std::size_t>(kind)), record.bytes);
    add(active_.back(), record.bytes);
    const std::lock_guard of_stream(stream.mutex);
    stream.tally.add(kind, asked, record.bytes, peaks_);
    stream.tally.settle(peaks_);
    return memory_.at(block->offset, asked);
  }

  // A record for the block, which `stream` comes after; or the block is free again. Where an event would have
  // to cross the border of a capture, it is another block, of memory that nobody has used.
  BlockRecord& make_ready(std::uint64_t asked, BlockKind kind, Tlsf::Block& block, PoolStream& stream) {
    try {
      return record_for(kind, block, stream);
    } catch (const CaptureConflict&) {
      const std::optional<Tlsf::Block> fresh = memory_.take_fresh(asked);
      if (!fresh) {
        throw;
      }
      block = *fresh;
    }
    return record_for(BlockKind::kLarge, block, stream);
  }
  BlockRecord& record_for(BlockKind kind, const Tlsf::Block& block, PoolStream& stream) {
    try {
      memory_.table().prepare(block.offset);
      if (spare_ == nullptr) {
        spare_ = &records_.emplace_back();
      }
      order_.make_ready(stream, block.frontier);
    } catch (...) {
      memory_.free(kind, block.offset, block.bytes, {});
      throw;
    }
    BlockRecord& record = *std::exchange(spare_, spare_->next);
    record.kind = kind;
    return record;
  }

  // Throws as long as nothing has changed.
  void free_beside_cache(BlockRecord& record, const Frontier& uses) {
    PoolStream& owner = *record.owner;
    const bool frees_granules = release(record, uses);
    if (const auto readers = readers_.extract(&record); !readers.empty()) {
      for (PoolStream* const reader : readers.mapped()) {
        --reader->readings;
        order_.recycle(*reader);
      }
    }
    {
      const std::lock_guard of_owner(owner.mutex);
      owner.tally.remove(record.kind, record.requested, record.bytes);
      owner.tally.settle(peaks_);
    }
    order_.recycle(owner);
    if (frees_granules) {
      memory_.mark_for_sinking();
    }
  }

  // Behind what a block that is freed now may be used again.
  Frontier uses_of(const BlockRecord& record, PoolStream* stream) {
    if (stream == nullptr || stream == &order_.host()) {
      return order_.missing(order_.host(), handed_out_behind(record));
    }
    Frontier uses(order_.freed_on(*stream));
    if (stream != record.owner) {
      uses.join(order_.missing(*stream, handed_out_behind(record)));
    }
    if (record.has_readers) {
      for (PoolStream* const reader : readers_.at(&record)) {
        uses.join(order_.freed_on(*reader));
      }
    }
    return uses;
  }

  // What its owner came after when it was given the block. Where the owner has not used it, nobody else need
  // have come after that.
  Frontier handed_out_behind(const BlockRecord& record) const {
    Frontier behind = memory_.handed_out_behind(record.kind, record.offset(), record.bytes);
    behind.join(record.freed_at());
    return behind;
  }

  // Back to the free blocks. Whether whole granules are free where it was.
  bool release(BlockRecord& record, const Frontier& uses) {
    const std::uint64_t offset = record.offset();
    const bool frees_granules = memory_.free(record.kind, offset, record.bytes, uses);
    memory_.table().set(offset, nullptr);
    remove(active_.at(static_cast<std::size_t>(record.kind)), record.bytes);
    remove(active_.back(), record.bytes);
    record.become(BlockRecord::kFree);
    record.next = std::exchange(spare_, &record);
    return frees_granules;
  }

  // --- under the pool's lock: figures ----------------------------------------------------------------------

  // Of a kind, or of all: what blocks are handed out.
  PoolFigures sum_of(std::size_t kind) const {
    PoolFigures sum;
    const auto add_all = [&](const StreamTally& tally) {
      const auto add_one = [](PoolFigure& to, const PoolFigure& figure) {
        to.current += figure.current;
        to.added += figure.added;
        to.removed += figure.removed;
      };
      add_one(sum.blocks, tally.of(kind).blocks.figure());
      add_one(sum.requested, tally.of(kind).requested.figure());
      add_one(sum.allocated, tally.of(kind).allocated.figure());
    };
    add_all(order_.retired());
    order_.for_each([&](PoolStream& stream) {
      const std::lock_guard lock(stream.mutex);
      add_all(stream.tally);
    });
    sum.blocks.peak = peaks_.at(kind).blocks.peak();
    sum.requested.peak = peaks_.at(kind).requested.peak();
    sum.allocated.peak = peaks_.at(kind).allocated.peak();
    return sum;
  }

  // A piece in use as far as memory goes: in the cache of a stream, maybe.
  void describe(PoolPiece& piece) const {
    const BlockRecord& record = *record_of(piece.range.begin);
    const std::lock_guard lock(record.owner->mutex);
    piece.stream_id = record.owner->id;
    piece.state = is_in_use(record) ? PoolPiece::State::kInUse : PoolPiece::State::kCached;
    piece.requested_bytes = is_in_use(record) ? record.requested : 0;
  }

  PoolBackend& backend_;
  const StreamPoolOptions options_;
  const SizeClasses classes_;
  const std::uint64_t small_bytes_;
  PoolPeaks peaks_;
  std::optional<PoolHistory> history_;

  mutable std::mutex mutex_;  // guards what follows, but for what says otherwise
  mutable StreamOrder order_;
  PoolMemory memory_;
  std::array<PoolFigure, kBlockKinds + 1> active_;  // by kind; the last: of all
  std::deque<BlockRecord> records_;
  BlockRecord* spare_ = nullptr;  // chained
  std::unordered_map<const BlockRecord*, std::vector<PoolStream*>> readers_;
  std::uint64_t reused_at_once_ = 0;
  std::uint64_t reused_after_wait_ = 0;
  std::uint64_t asked_again_ = 0;  // the program, for memory
  std::uint64_t failures_ = 0;
  std::uint64_t freed_unordered_ = 0;
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
