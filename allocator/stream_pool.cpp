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
#include "allocator/pool_region.h"
#include "allocator/pool_tally.h"
#include "allocator/size_classes.h"
#include "allocator/stream_order.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Blocks that are not small are cut in pages: what that loses is little beside them.
constexpr std::uint64_t kPage = 4096;
// A block that enters a full cache pushes out so many at most, so that a free takes a constant time.
constexpr int kMaxEvictions = 8;

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
  require(options.small_bytes > 0 &&
              SizeClasses(backend.alignment_bytes).class_of(options.small_bytes) < SizeClasses::kClasses,
          "small blocks of " + format_size(options.small_bytes) + " are too many sizes");
}

// --- whole granules of free blocks, which can be given back ------------------------------------------------

struct FreeGranules {
  PoolRegion* region = nullptr;
  Tlsf::Index block = 0;
  Tlsf::Extent extent;
  Frontier frontier;
};

Tlsf::Extent whole_granules(Tlsf::Extent extent, std::uint64_t granule) {
  const std::uint64_t begin = round_up(extent.offset, granule);
  const std::uint64_t end = extent.end() / granule * granule;
  return {.offset = begin, .bytes = end > begin ? end - begin : 0};
}

// The larger part of `extent` outside of `kept`.
Tlsf::Extent outside(Tlsf::Extent extent, Tlsf::Extent kept) {
  const Tlsf::Extent before{
      .offset = extent.offset,
      .bytes = std::min(extent.end(), std::max(kept.offset, extent.offset)) - extent.offset};
  const std::uint64_t behind = std::max(extent.offset, std::min(kept.end(), extent.end()));
  const Tlsf::Extent after{.offset = behind, .bytes = extent.end() - behind};
  return after.bytes > before.bytes ? after : before;
}

// Where a block is to lie, so that none of it is taken for that.
struct Kept {
  const PoolRegion* region = nullptr;
  Tlsf::Extent place;
};

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
        granule_(backend.properties().granule_bytes),
        budget_((options.budget_bytes == 0 ? backend.properties().memory_bytes : options.budget_bytes) /
                granule_ * granule_),
        classes_(backend.properties().alignment_bytes),
        order_(backend, options.ends_are_told) {
    const std::uint64_t alignment = backend.properties().alignment_bytes;
    const std::uint64_t page = std::max(alignment, std::min(kPage, granule_));
    regions_.emplace_back(backend, BlockKind::kSmall, budget_, alignment, reserved_);
    regions_.emplace_back(backend, BlockKind::kLarge, budget_, page, reserved_);
    regions_.emplace_back(backend, BlockKind::kPersistent, budget_, alignment, reserved_);
  }

  ~Impl() {
    // Twice: a call that was refused has not waited. Work that failed is done with the memory, too.
    for (int i = 0; i < 2; ++i) {
      try {
        backend_.synchronize_all();
        break;
      } catch (...) {
        continue;
      }
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle handle, BlockLife life) {
    if (PoolStream* const stream = order_.find(handle)) {
      return allocate(bytes, *stream, life);
    }
    std::unique_lock lock(mutex_);
    PoolStream& stream = order_.at(handle);
    lock.unlock();
    return allocate(bytes, stream, life);
  }

  std::optional<AddressRange> allocate_ready(std::uint64_t bytes, BlockLife life) {
    return allocate(bytes, order_.host(), life);
  }

  void free(std::uint64_t address) {
    BlockRecord& record = claim(address);
    if (!give_to_cache(record, *record.owner)) {
      free_claimed(record, record.owner);
    }
  }

  void free(std::uint64_t address, StreamHandle handle) {
    PoolStream* stream = order_.find(handle);
    if (stream == nullptr) {
      const std::lock_guard lock(mutex_);
      stream = &order_.at(handle);
    }
    BlockRecord& record = claim(address);
    if (stream != record.owner || !give_to_cache(record, *stream)) {
      free_claimed(record, stream);
    }
  }

  void free_idle(std::uint64_t address) {
    BlockRecord& record = claim(address);
    if (record.owner != &order_.host() || !give_to_cache(record, *record.owner)) {
      free_claimed(record, nullptr);
    }
  }

  void used_on(std::uint64_t address, StreamHandle handle) {
    const std::lock_guard lock(mutex_);
    const StreamId reader = order_.at(handle).index;
    BlockRecord& record = record_at(address);
    if (!is_in_use(record)) {
      refuse(address);
    }
    if (record.owner->index == reader) {
      return;
    }
    std::vector<StreamId>& readers = readers_[&record];
    if (std::ranges::find(readers, reader) == readers.end()) {
      readers.push_back(reader);
      ++order_.at_index(reader).readings;
    }
    record.change(record.offset(), BlockRecord::kInUse, BlockRecord::kShared);
  }

  bool owns(std::uint64_t address) const { return region_of(address) != nullptr; }

  std::optional<AddressRange> find(std::uint64_t address) const {
    const std::lock_guard lock(mutex_);
    const PoolRegion* const region = region_of(address);
    BlockRecord* const record =
        region == nullptr ? nullptr : region->table().find(region->offset_of(address));
    if (record == nullptr) {
      return std::nullopt;
    }
    const std::lock_guard of_owner(record->owner->mutex);
    if (!is_in_use(*record)) {
      return std::nullopt;
    }
    return AddressRange{.begin = address, .bytes = record->requested};
  }

  void forget(StreamHandle handle) {
    const std::lock_guard lock(mutex_);
    if (PoolStream* const stream = order_.known(handle)) {
      order_.end(*stream);
      flush(*stream);
    }
  }

  std::uint64_t trim(std::uint64_t keep_bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t before = reserved_.current;
    flush_caches();
    if (before > keep_bytes) {
      give_back(std::min(before - keep_bytes, givable({})), true, {});
    }
    return before - reserved_.current;
  }

  MemoryShortage shortage(std::uint64_t asked) const {
    const std::lock_guard lock(mutex_);
    const auto largest_of = [this](BlockKind kind) {
      return regions_.at(static_cast<std::size_t>(kind)).blocks().largest_free_block_bytes();
    };
    const std::uint64_t small = largest_of(BlockKind::kSmall);
    const std::uint64_t large = largest_of(BlockKind::kLarge);
    const std::uint64_t in_use = sum_of(kBlockKinds).allocated.current;
    const std::uint64_t growth = budget_ - reserved_.current + givable({});
    return {
        .asked = asked,
        .in_use = in_use,
        .cached = reserved_.current - in_use,
        .largest_free_block = std::max({small, large, largest_of(BlockKind::kPersistent)}),
        .budget = budget_,
        // What a small block leaves free is for small blocks alone.
        .would_have_fitted = std::max({growth, std::min(classes_.whole_class(small), options_.small_bytes),
                                       large > options_.small_bytes ? large : 0})};
  }

  StreamPoolStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    StreamPoolStatistics all;
    for (const PoolRegion& region : regions_) {
      const auto kind = static_cast<std::size_t>(region.kind());
      all.kinds.at(kind) = sum_of(kind);
      all.kinds.at(kind).active = region.active;
      all.kinds.at(kind).reserved = region.reserved;
    }
    all.all = sum_of(kBlockKinds);
    all.all.active = active_;
    all.all.reserved = reserved_;
    all.reused_from_cache = order_.retired_reused();
    order_.for_each([&](PoolStream& stream) {
      const std::lock_guard of_stream(stream.mutex);
      all.reused_from_cache += stream.reused_from_cache;
    });
    all.reused_at_once = reused_at_once_;
    all.reused_after_wait = reused_after_wait_;
    all.growths = growths_;
    all.events_recorded = order_.counters().events_recorded;
    all.stream_waits = order_.counters().stream_waits;
    all.host_waits = order_.counters().host_waits;
    all.device_waits = order_.counters().device_waits;
    all.retries = retries_;
    all.failures = failures_;
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
    const auto reset = [](PoolFigure& figure) { figure.peak = figure.current; };
    for (PoolRegion& region : regions_) {
      reset(region.active);
      reset(region.reserved);
    }
    reset(active_);
    reset(reserved_);
  }

  std::vector<PoolPiece> snapshot() const {
    const std::lock_guard lock(mutex_);
    std::vector<PoolPiece> pieces;
    for (const PoolRegion& region : regions_) {
      const std::size_t first = pieces.size();
      region.blocks().for_each_from_the_end(
          [&](Tlsf::Extent extent, Tlsf::State state) { pieces.push_back(piece(region, extent, state)); });
      std::reverse(pieces.begin() + static_cast<std::ptrdiff_t>(first), pieces.end());
    }
    return pieces;
  }

  PoolBackend& backend() const { return backend_; }

 private:
  // --- finding ---------------------------------------------------------------------------------------------

  const PoolRegion* region_of(std::uint64_t address) const {
    for (const PoolRegion& region : regions_) {
      if (region.contains(address)) {
        return &region;
      }
    }
    return nullptr;
  }
  PoolRegion* region_of(std::uint64_t address) {
    return const_cast<PoolRegion*>(std::as_const(*this).region_of(address));
  }

  static bool is_in_use(const BlockRecord& record) {
    return record.state() == BlockRecord::kInUse || record.state() == BlockRecord::kShared;
  }

  [[noreturn]] void refuse(std::uint64_t address) const {
    throw InvalidArgument(backend_.properties().name + ": no block in use begins at address " +
                          std::to_string(address) +
                          (owns(address) ? ", which is the pool's" : ", which is not the pool's"));
  }

  BlockRecord& record_at(std::uint64_t address) {
    const PoolRegion* const region = region_of(address);
    BlockRecord* const record =
        region == nullptr ? nullptr : region->table().find(region->offset_of(address));
    if (record == nullptr) {
      refuse(address);
    }
    return *record;
  }

  // The block in use that begins at `address`; from here on the caller's alone.
  BlockRecord& claim(std::uint64_t address) {
    BlockRecord& record = record_at(address);
    const std::uint64_t offset = region_of(address)->offset_of(address);
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

  std::optional<AddressRange> allocate(std::uint64_t bytes, PoolStream& stream, BlockLife life) {
    const std::uint64_t asked = std::max<std::uint64_t>(bytes, 1);
    if (life == BlockLife::kPersistent || asked > options_.small_bytes) {
      const BlockKind kind = life == BlockLife::kPersistent ? BlockKind::kPersistent : BlockKind::kLarge;
      return allocate_beside_cache(asked, SizeClasses::kClasses, stream, kind);
    }
    const unsigned size_class = classes_.class_of(asked);
    {
      const std::lock_guard lock(stream.mutex);
      if (BlockRecord* const record = stream.cache.pop(size_class)) {
        record->requested = asked;
        stream.tally.add(BlockKind::kSmall, asked, record->bytes, peaks_);
        ++stream.reused_from_cache;
        const std::uint64_t offset = record->offset();
        record->become(BlockRecord::kInUse);
        return regions_.front().at(offset, asked);
      }
    }
    return allocate_beside_cache(asked, size_class, stream, BlockKind::kSmall);
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
      taken = !stream.ended && make_room(stream, record, evicted);
      if (taken) {
        record.freed_at = stream.next_point().count;
        stream.freed_in_epoch = true;
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
        release(record, Frontier(Point{.stream = stream.index, .count = record.freed_at}));
      } catch (const std::bad_alloc&) {
        const std::lock_guard of_stream(stream.mutex);
        stream.cache.push(record);
      }
    }
  }

  // Whether there was anything.
  bool flush(PoolStream& stream) {
    const std::lock_guard lock(stream.mutex);
    bool any = false;
    while (BlockRecord* const record = stream.cache.pop_any()) {
      try {
        release(*record, Frontier(Point{.stream = stream.index, .count = record->freed_at}));
      } catch (...) {
        stream.cache.push(*record);
        throw;
      }
      any = true;
    }
    stream.tally.settle(peaks_);
    return any;
  }
  bool flush_caches() {
    bool any = false;
    order_.for_each([&](PoolStream& stream) { any = flush(stream) || any; });
    return any;
  }

  // --- under the pool's lock: blocks -----------------------------------------------------------------------

  std::optional<AddressRange> allocate_beside_cache(std::uint64_t asked, unsigned size_class,
                                                    PoolStream& stream, BlockKind kind) {
    std::unique_lock lock(mutex_);
    while (asked <= budget_) {
      if (const auto block = allocate_locked(asked, size_class, stream, kind)) {
        return block;
      }
      if (!options_.on_exhausted) {
        break;
      }
      ++retries_;
      lock.unlock();
      const bool again = options_.on_exhausted(asked);
      lock.lock();
      if (!again) {
        break;
      }
    }
    ++failures_;
    return std::nullopt;
  }

  std::optional<AddressRange> allocate_locked(std::uint64_t asked, unsigned size_class, PoolStream& stream,
                                              BlockKind kind) {
    PoolRegion& region = regions_.at(static_cast<std::size_t>(kind));
    const std::uint64_t bytes =
        kind == BlockKind::kSmall ? classes_.bytes_of(size_class) : round_up(asked, region.unit());
    const std::uint64_t growths = growths_;
    const std::optional<Tlsf::Block> block = take(region, bytes, order_.knowledge(stream));
    if (!block) {
      return std::nullopt;
    }
    const std::uint64_t waits = order_.counters().stream_waits + order_.counters().host_waits;
    BlockRecord& record = make_ready(region, *block, stream);
    if (growths_ == growths) {
      const bool waited = order_.counters().stream_waits + order_.counters().host_waits != waits;
      ++(waited ? reused_after_wait_ : reused_at_once_);
    }
    record.owner = &stream;
    record.kind = kind;
    record.bytes = bytes;
    record.requested = asked;
    record.size_class = size_class;
    record.freed_at = 0;
    record.has_readers = false;
    record.tagged.store(BlockRecord::tag(block->offset, BlockRecord::kInUse), std::memory_order_release);
    region.table().set(block->offset, &record);
    add(region.active, bytes);
    add(active_, bytes);
    const std::lock_guard of_stream(stream.mutex);
    stream.tally.add(kind, asked, bytes, peaks_);
    stream.tally.settle(peaks_);
    return region.at(block->offset, asked);
  }

  // A record for the block, which `stream` comes after; or the block is free again.
  BlockRecord& make_ready(PoolRegion& region, const Tlsf::Block& block, PoolStream& stream) {
    try {
      region.table().prepare(block.offset);
      if (spare_ == nullptr) {
        spare_ = &records_.emplace_back();
      }
      order_.make_ready(stream, block.frontier);
    } catch (...) {
      region.blocks().free(block.offset, block.bytes, {});
      throw;
    }
    return *std::exchange(spare_, spare_->next);
  }

  // `stream`: in whose order; null: all that has used the block is done.
  void free_claimed(BlockRecord& record, PoolStream* stream) {
    const std::lock_guard lock(mutex_);
    sink_to_mark();
    const bool has_readers = record.has_readers;
    Tlsf::Extent merged;
    PoolStream& owner = *record.owner;
    try {
      merged = release(record, uses_of(record, stream));
    } catch (...) {
      record.has_readers = false;
      record.become(has_readers ? BlockRecord::kShared : BlockRecord::kInUse);
      throw;
    }
    if (const auto readers = readers_.extract(&record); !readers.empty()) {
      for (const StreamId reader : readers.mapped()) {
        --order_.at_index(reader).readings;
      }
    }
    {
      const std::lock_guard of_owner(owner.mutex);
      owner.tally.remove(record.kind, record.requested, record.bytes);
      owner.tally.settle(peaks_);
    }
    mark_for_sinking(merged);
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
      for (const StreamId reader : readers_.at(&record)) {
        uses.join(order_.freed_on(order_.at_index(reader)));
      }
    }
    return uses;
  }

  // What its owner came after when it was given the block. Where the owner has not used it, nobody else need
  // have come after that.
  Frontier handed_out_behind(const BlockRecord& record) const {
    const PoolRegion& region = regions_.at(static_cast<std::size_t>(record.kind));
    Frontier behind = region.blocks().in_use(record.offset(), record.bytes).frontier;
    behind.join(Point{.stream = record.owner->index, .count = record.freed_at});
    return behind;
  }

  // Back to the free blocks, which the block is merged with.
  Tlsf::Extent release(BlockRecord& record, const Frontier& uses) {
    PoolRegion& region = regions_.at(static_cast<std::size_t>(record.kind));
    const std::uint64_t offset = record.offset();
    const Tlsf::Extent merged = region.blocks().free(offset, record.bytes, uses);
    region.table().set(offset, nullptr);
    remove(region.active, record.bytes);
    remove(active_, record.bytes);
    record.become(BlockRecord::kFree);
    record.next = std::exchange(spare_, &record);
    return merged;
  }

  // --- under the pool's lock: memory -----------------------------------------------------------------------

  std::optional<Tlsf::Block> take(PoolRegion& region, std::uint64_t bytes, const Frontier& known) {
    const auto find = [&] { return region.blocks().allocate(bytes, known); };
    if (std::optional<Tlsf::Block> block = find()) {
      return block;
    }
    // Reuse before growth: what streams keep for themselves is free.
    if (region.kind() == BlockKind::kSmall && flush_caches()) {
      if (std::optional<Tlsf::Block> block = find()) {
        return block;
      }
    }
    if (grow(region, bytes)) {
      return find();
    }
    ++retries_;
    if (flush_caches()) {
      if (std::optional<Tlsf::Block> block = find()) {
        return block;
      }
    }
    return grow(region, bytes) || grow_by_moving(region, bytes) ? find() : std::nullopt;
  }

  // Gives memory to where the block lacks least. False where budget, device or addresses do not allow it.
  bool grow(PoolRegion& region, std::uint64_t bytes) {
    const std::optional<Tlsf::Room> room = region.blocks().room(bytes, granule_);
    return room && room->bytes_to_fill <= budget_ - reserved_.current && commit(region, *room);
  }

  // Likewise, with granules of free blocks elsewhere.
  bool grow_by_moving(PoolRegion& region, std::uint64_t bytes) {
    const std::optional<Tlsf::Room> room = region.blocks().room(bytes, granule_);
    if (!room) {
      return false;
    }
    const std::uint64_t left = budget_ - reserved_.current;
    // Within the budget, it was the device that had no more.
    const std::uint64_t wanted =
        room->bytes_to_fill > left ? room->bytes_to_fill - left : room->bytes_to_fill;
    const Kept kept{.region = &region, .place = room->place};
    if (givable(kept) < wanted) {
      return false;
    }
    give_back(wanted, true, kept);
    return commit(region, *room);
  }

  bool commit(PoolRegion& region, const Tlsf::Room& room) {
    try {
      for (const Tlsf::Extent& hole : room.to_fill) {
        region.commit(hole);
      }
    } catch (const OutOfMemory&) {
      return false;
    }
    ++growths_;
    return true;
  }

  // Calls visit(region, block, granules, frontier) for what is free in whole granules, but for what is kept.
  template <class Visit>
  void for_each_free_granules(const Kept& kept, const Visit& visit) const {
    for (const PoolRegion& region : regions_) {
      region.blocks().for_each_free([&](Tlsf::Index block, Tlsf::Extent extent, const Frontier& frontier) {
        const Tlsf::Extent part = &region == kept.region ? outside(extent, kept.place) : extent;
        if (const Tlsf::Extent granules = whole_granules(part, granule_); granules.bytes > 0) {
          visit(region, block, granules, frontier);
        }
      });
    }
  }

  std::uint64_t givable(const Kept& kept) const {
    std::uint64_t bytes = 0;
    for_each_free_granules(kept, [&](const PoolRegion&, Tlsf::Index, Tlsf::Extent granules, const Frontier&) {
      bytes += granules.bytes;
    });
    return bytes;
  }

  std::vector<FreeGranules> free_granules(const Kept& kept) {
    std::vector<FreeGranules> all;
    for_each_free_granules(kept, [&](const PoolRegion& region, Tlsf::Index block, Tlsf::Extent granules,
                                     const Frontier& frontier) {
      all.push_back({.region = &regions_.at(static_cast<std::size_t>(region.kind())),
                     .block = block,
                     .extent = granules,
                     .frontier = frontier});
    });
    return all;
  }

  // Gives `bytes` back to the device: of what is done, and then, where the host may wait, of what has to be
  // waited for least. Less where there is no more.
  void give_back(std::uint64_t bytes, bool may_wait, const Kept& kept) {
    order_.look();
    for (;;) {
      const std::vector<FreeGranules> all = free_granules(kept);
      for (const FreeGranules& each : all) {
        if (bytes > 0 && order_.is_done(each.frontier)) {
          bytes -= decommit(each, bytes);
        }
      }
      const FreeGranules* const next = bytes > 0 && may_wait ? least_to_wait_for(all, bytes) : nullptr;
      if (next == nullptr) {
        return;
      }
      order_.wait_until_done(next->frontier);
    }
  }

  // At most `bytes`, from the end.
  std::uint64_t decommit(const FreeGranules& granules, std::uint64_t bytes) {
    const std::uint64_t given = std::min(granules.extent.bytes, round_up(bytes, granule_));
    granules.region->decommit(granules.block, {.offset = granules.extent.end() - given, .bytes = given});
    return std::min(given, bytes);
  }

  // One that suffices, before any that does not; then the one with the fewest streams, then the largest.
  const FreeGranules* least_to_wait_for(const std::vector<FreeGranules>& all, std::uint64_t bytes) {
    const auto cost = [&](const FreeGranules& each) {
      return std::tuple(each.extent.bytes < bytes,
                        order_.missing(order_.host(), each.frontier).points().size(), ~each.extent.bytes);
    };
    const FreeGranules* least = nullptr;
    for (const FreeGranules& each : all) {
      if (!order_.is_done(each.frontier) && (least == nullptr || cost(each) < cost(*least))) {
        least = &each;
      }
    }
    return least;
  }

  bool is_above_mark() const {
    return options_.high_water_bytes != 0 && reserved_.current > options_.high_water_bytes;
  }

  // Above the high-water mark: gives back what is done by now. Before a block is freed, since what it is
  // merged with is done no sooner than the block.
  void sink_to_mark() noexcept {
    if (!is_above_mark() || !marked_) {
      return;
    }
    try {
      give_back(reserved_.current - options_.high_water_bytes, false, {});
    } catch (...) {
      // That no memory could be given back is not the failure of who frees a block.
    }
  }

  // So that the next frees see when what is free now, `merged` too, is done.
  void mark_for_sinking(Tlsf::Extent merged) noexcept {
    if (!is_above_mark() || whole_granules(merged, granule_).bytes == 0) {
      return;
    }
    marked_ = true;
    try {
      for (const FreeGranules& each : free_granules({})) {
        order_.mark(each.frontier);
      }
    } catch (...) {
      // As above.
    }
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

  static PoolPiece piece(const PoolRegion& region, Tlsf::Extent extent, Tlsf::State state) {
    PoolPiece piece{
        .state = state == Tlsf::State::kVacant ? PoolPiece::State::kVacant : PoolPiece::State::kFree,
        .kind = region.kind(),
        .range = region.at(extent.offset, extent.bytes)};
    if (state == Tlsf::State::kInUse) {
      BlockRecord& record = *region.table().find(extent.offset);
      const std::lock_guard lock(record.owner->mutex);
      piece.stream_id = record.owner->id;
      piece.state = is_in_use(record) ? PoolPiece::State::kInUse : PoolPiece::State::kCached;
      piece.requested_bytes = is_in_use(record) ? record.requested : 0;
    }
    return piece;
  }

  PoolBackend& backend_;
  const StreamPoolOptions options_;
  const std::uint64_t granule_;
  const std::uint64_t budget_;
  const SizeClasses classes_;
  PoolPeaks peaks_;

  mutable std::mutex mutex_;  // guards what follows, but for what says otherwise
  mutable StreamOrder order_;
  PoolFigure active_;
  PoolFigure reserved_;
  bool marked_ = false;             // some of what is free has been above the high-water mark
  std::deque<PoolRegion> regions_;  // by kind
  std::deque<BlockRecord> records_;
  BlockRecord* spare_ = nullptr;  // chained
  std::unordered_map<const BlockRecord*, std::vector<StreamId>> readers_;
  std::uint64_t reused_at_once_ = 0;
  std::uint64_t reused_after_wait_ = 0;
  std::uint64_t growths_ = 0;
  std::uint64_t retries_ = 0;
  std::uint64_t failures_ = 0;
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

void StreamPool::used_on(std::uint64_t address, StreamHandle stream) {
  impl_->used_on(address, stream);
}

bool StreamPool::owns(std::uint64_t address) const {
  return impl_->owns(address);
}

std::optional<AddressRange> StreamPool::find(std::uint64_t address) const {
  return impl_->find(address);
}

void StreamPool::forget(StreamHandle stream) {
  impl_->forget(stream);
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

PoolBackend& StreamPool::backend() const {
  return impl_->backend();
}

}  // namespace vdnn
