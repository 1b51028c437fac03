#include "allocator/pool_memory.h"

#include <algorithm>
#include <tuple>

#include "allocator/pool_tally.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

std::uint64_t budget_of(const PoolBackend& backend, const StreamPoolOptions& options) {
  return options.budget_bytes == 0 ? backend.properties().memory_bytes : options.budget_bytes;
}

// A slab holds a small block of any size, and several blocks of most sizes.
std::uint64_t slab_of(const PoolBackend& backend, const StreamPoolOptions& options) {
  const std::uint64_t granule = backend.properties().granule_bytes;
  return std::max(granule / 8,
                  round_up(std::min(options.small_bytes, granule), backend.properties().alignment_bytes));
}

PoolPiece::State state_of(Tlsf::State state) {
  switch (state) {
    case Tlsf::State::kInUse:
      return PoolPiece::State::kInUse;
    case Tlsf::State::kFree:
      return PoolPiece::State::kFree;
    case Tlsf::State::kVacant:
      break;
  }
  return PoolPiece::State::kVacant;
}

}  // namespace

PoolMemory::PoolMemory(PoolBackend& backend, const StreamPoolOptions& options, StreamOrder& order)
    : options_(options),
      order_(order),
      unit_(backend.properties().alignment_bytes),
      slab_bytes_(slab_of(backend, options)),
      stock_(backend, budget_of(backend, options)),
      large_(backend, stock_, order, unit_),
      small_(large_, order, slab_bytes_, unit_),
      persistent_(large_, order, slab_bytes_, unit_),
      table_(large_.address_bytes(), stock_.granule_bytes(), unit_) {
  count_reserved();
}

// --- blocks ------------------------------------------------------------------------------------------------

std::optional<Tlsf::Block> PoolMemory::allocate(BlockKind kind, std::uint64_t bytes,
                                                const StreamKnowledge& known,
                                                const std::function<bool()>& flush_caches) {
  const Counted counted(*this);
  if (kind != BlockKind::kLarge) {
    if (std::optional<Tlsf::Block> block = slabs(kind).allocate(bytes, known)) {
      return block;
    }
  }
  // Blocks in caches are free, too, and are reused before memory grows.
  if (kind == BlockKind::kSmall) {
    flush_caches();
  }
  if (std::optional<Tlsf::Block> block = reuse(kind, bytes, known)) {
    return block;
  }
  if (reclaim()) {
    if (std::optional<Tlsf::Block> block = reuse(kind, bytes, known)) {
      return block;
    }
  }
  if (grow(kind, bytes)) {
    if (std::optional<Tlsf::Block> block = reuse(kind, bytes, known)) {
      return block;
    }
  }
  ++retries_;
  flush_caches();
  reclaim();
  if (std::optional<Tlsf::Block> block = reuse(kind, bytes, known)) {
    return block;
  }
  return grow(kind, bytes) ? reuse(kind, bytes, known) : std::nullopt;
}

std::optional<Tlsf::Block> PoolMemory::allocate_unused(std::uint64_t bytes) {
  const Counted counted(*this);
  try {
    std::optional<Tlsf::Block> block = large_.allocate_unused(round_up(bytes, unit_));
    growths_ += block ? 1U : 0U;
    return block;
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

// Allocates from committed memory.
std::optional<Tlsf::Block> PoolMemory::reuse(BlockKind kind, std::uint64_t bytes,
                                             const StreamKnowledge& known) {
  if (kind == BlockKind::kLarge) {
    return large_.allocate(bytes, known);
  }
  if (std::optional<Tlsf::Block> block = slabs(kind).allocate(bytes, known)) {
    return block;
  }
  return slabs(kind).add_slab(known) ? slabs(kind).allocate(bytes, known) : std::nullopt;
}

bool PoolMemory::grow(BlockKind kind, std::uint64_t bytes) {
  const LargeRegion::Growth growth = large_.growth_for(kind == BlockKind::kLarge ? bytes : slab_bytes_);
  if (growth.bytes == 0 || growth.bytes > stock_.left()) {
    return false;
  }
  bool grown = false;
  try {
    grown = large_.grow(growth);
  } catch (const OutOfMemory&) {
    grown = false;
  }
  growths_ += grown ? 1U : 0U;
  return grown;
}

// Gives free slabs back to the large region. Returns whether there were any.
bool PoolMemory::reclaim() {
  const bool small = small_.reclaim();
  const bool persistent = persistent_.reclaim();
  return small || persistent;
}

Frontier PoolMemory::handed_out_after(BlockKind kind, std::uint64_t offset, std::uint64_t bytes) const {
  return kind == BlockKind::kLarge ? large_.handed_out_after(offset, bytes)
                                   : slabs(kind).handed_out_after(offset, bytes);
}

bool PoolMemory::free(BlockKind kind, std::uint64_t offset, std::uint64_t bytes, const Frontier& last_use) {
  return kind == BlockKind::kLarge ? large_.free(offset, bytes, last_use)
                                   : slabs(kind).free(offset, bytes, last_use);
}

std::uint64_t PoolMemory::largest_free_block_bytes(BlockKind kind) const {
  return kind == BlockKind::kLarge ? large_.largest_free_block_bytes()
                                   : slabs(kind).largest_free_block_bytes();
}

std::vector<PoolPiece> PoolMemory::pieces() const {
  std::vector<PoolPiece> pieces;
  const auto append = [&](BlockKind kind, Tlsf::Extent extent, PoolPiece::State state) {
    if (extent.bytes > 0) {
      pieces.push_back({.state = state, .kind = kind, .range = at(extent.offset, extent.bytes)});
    }
  };
  large_.for_each_piece([&](Tlsf::Extent extent, Tlsf::State state) {
    if (state == Tlsf::State::kInUse &&
        (small_.is_slab(extent.offset) || persistent_.is_slab(extent.offset))) {
      return;
    }
    const BlockRecord* const record = extent.bytes > 0 ? table_.find(extent.offset) : nullptr;
    // Granules of a view are reported at the addresses of the view.
    const bool is_lent = state == Tlsf::State::kInUse && record == nullptr;
    append(BlockKind::kLarge, extent, is_lent ? PoolPiece::State::kVacant : state_of(state));
  });
  for (const BlockKind kind : {BlockKind::kSmall, BlockKind::kPersistent}) {
    slabs(kind).for_each_piece(
        [&](Tlsf::Extent extent, Tlsf::State state) { append(kind, extent, state_of(state)); });
  }
  std::ranges::sort(pieces, {}, [](const PoolPiece& piece) { return piece.range.begin; });
  std::vector<PoolPiece> merged;
  for (const PoolPiece& piece : pieces) {
    const bool is_vacant = piece.state == PoolPiece::State::kVacant;
    if (is_vacant && !merged.empty() && merged.back().state == PoolPiece::State::kVacant) {
      merged.back().range.bytes += piece.range.bytes;
    } else {
      merged.push_back(piece);
    }
  }
  return merged;
}

// --- memory ------------------------------------------------------------------------------------------------

bool PoolMemory::reserve(std::uint64_t bytes) {
  const std::uint64_t committed = reserved().current;
  if (bytes <= committed) {
    return true;
  }
  if (bytes > budget_bytes()) {
    return false;
  }
  const Counted counted(*this);
  const std::uint64_t missing = round_up(bytes - committed, stock_.granule_bytes());
  try {
    const bool grown = large_.grow({.bytes = missing, .to_commit = {}});
    growths_ += grown ? 1U : 0U;
    return grown;
  } catch (const OutOfMemory&) {
    return false;
  }
}

void PoolMemory::trim(std::uint64_t keep_bytes) {
  const Counted counted(*this);
  stock_.give_back_refused();
  reclaim();
  if (const std::uint64_t committed = reserved().current; committed > keep_bytes) {
    give_back(std::min(committed - keep_bytes, large_.free_granule_bytes()), true);
  }
}

std::uint64_t PoolMemory::free_granule_bytes() const {
  return (large_.can_give_back() ? large_.free_granule_bytes() : 0) + stock_.refused_bytes();
}

// Gives `bytes` back to the device, or less if no more can be given back. Starts with granules whose work is
// done. If the host may wait, continues with those that need the least waiting.
void PoolMemory::give_back(std::uint64_t bytes, bool may_wait) {
  order_.poll_events();
  for (;;) {
    const std::vector<FreeGranules> all = large_.free_granules();
    for (const FreeGranules& each : all) {
      if (bytes > 0 && order_.is_done(each.frontier)) {
        bytes -= std::min(bytes, large_.give_back(each, bytes));
      }
    }
    const FreeGranules* const next = bytes > 0 && may_wait ? least_to_wait_for(all, bytes) : nullptr;
    if (next == nullptr || !wait_for(next->frontier)) {
      return;
    }
  }
}

// Returns false if a capture forbids the host to wait.
bool PoolMemory::wait_for(const Frontier& frontier) {
  try {
    order_.wait_until_done(frontier);
  } catch (const CaptureConflict&) {
    return false;
  }
  return order_.is_done(frontier);
}

// Prefers granules of at least `bytes`, then those with the fewest streams to wait for, then the most bytes.
const PoolMemory::FreeGranules* PoolMemory::least_to_wait_for(const std::vector<FreeGranules>& all,
                                                              std::uint64_t bytes) {
  const auto cost = [&](const FreeGranules& each) {
    return std::tuple(each.extent.bytes < bytes, order_.missing(order_.host(), each.frontier).points().size(),
                      ~each.extent.bytes);
  };
  const FreeGranules* least = nullptr;
  for (const FreeGranules& each : all) {
    if (!order_.is_done(each.frontier) && (least == nullptr || cost(each) < cost(*least))) {
      least = &each;
    }
  }
  return least;
}

void PoolMemory::shrink_to_high_water() noexcept {
  if (!is_above_high_water() || !was_above_high_water_) {
    return;
  }
  const Counted counted(*this);
  try {
    reclaim();
    give_back(reserved().current - options_.high_water_bytes, false);
  } catch (...) {
    // The free succeeds even if no memory could be given back.
  }
}

void PoolMemory::prepare_to_shrink() noexcept {
  if (!is_above_high_water()) {
    return;
  }
  was_above_high_water_ = true;
  const Counted counted(*this);
  try {
    reclaim();
    for (const FreeGranules& each : large_.free_granules()) {
      order_.record_events_for(each.frontier);
    }
  } catch (...) {
    // The free succeeds even if an event could not be recorded.
  }
}

// --- figures -----------------------------------------------------------------------------------------------

void PoolMemory::count_reserved() noexcept {
  const auto set = [&](BlockKind kind, std::uint64_t bytes) {
    PoolFigure& figure = reserved_[static_cast<std::size_t>(kind)];
    if (bytes > figure.current) {
      add(figure, bytes - figure.current);
    } else {
      remove(figure, figure.current - bytes);
    }
  };
  set(BlockKind::kSmall, small_.bytes());
  set(BlockKind::kPersistent, persistent_.bytes());
  set(BlockKind::kLarge, reserved().current - small_.bytes() - persistent_.bytes());
}

void PoolMemory::reset_peaks() {
  stock_.reset_peak();
  for (PoolFigure& figure : reserved_) {
    figure.peak = figure.current;
  }
}

}  // namespace vdnn
