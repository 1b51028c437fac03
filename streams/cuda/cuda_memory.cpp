#include "streams/cuda/cuda_memory.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>

#include "streams/cuda/cuda_gpus.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// The size of a tile is its offset in the reservation divided by kTilesPerOffset.
constexpr std::uint64_t kTilesPerOffset = 64;
constexpr std::uint64_t kMaxTile = std::uint64_t{64} << 20;

}  // namespace

CudaMemory::CudaMemory(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
                       std::span<const int> peers)
    : context_(context),
      virtual_memory_(info.virtual_memory),
      kind_(memory_kind_of(context, info)),
      users_{context.ordinal()},
      space_(context.owner(), granule_bytes) {
  users_.insert(users_.end(), peers.begin(), peers.end());
  if (!virtual_memory_) {
    std::ranges::for_each(peers, [this](int peer) { open_to(peer); });
  }
}

// Peer access is never disabled: other code in the process may have enabled it, too, and CUDA does not count
// how often.
void CudaMemory::open_to(int peer) {
  const CudaContext::Scope scope = context_.enter(peer);
  const CudaStatus status = context_.api().enable_peer_access(context_.ordinal());
  if (status == CudaStatus::kPeerAccessAlreadyEnabled) {
    context_.forget(status);
    return;
  }
  context_.check(status, "cudaDeviceEnablePeerAccess", [this] { return std::to_string(context_.ordinal()); });
}

CudaMemory::~CudaMemory() {
  const CudaContext::Scope scope = context_.enter_anyway();
  for (const auto& [begin, bytes] : pieces_) {
    context_.forget(context_.api().memory_unmap({.begin = begin, .bytes = bytes}));
  }
  for (const AddressRange reservation : space_.reservations()) {
    context_.forget(give_back(reservation));
  }
}

AddressRange CudaMemory::reserve(std::uint64_t bytes) {
  if (bytes == 0) {
    space_.refuse("a reservation of 0 bytes", {});
  }
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  const AddressRange range = take(round_up(bytes, space_.granule_bytes()));
  try {
    space_.add(range);
  } catch (...) {
    context_.forget(give_back(range));
    throw;
  }
  return range;
}

AddressRange CudaMemory::take(std::uint64_t bytes) {
  CudaApi& api = context_.api();
  AddressRange range{.begin = 0, .bytes = bytes};
  if (virtual_memory_) {
    context_.check_memory(api.address_reserve(range.begin, bytes, space_.granule_bytes()),
                          "cuMemAddressReserve", [&] { return MemoryShortage{.asked = bytes}; });
    return range;
  }
  context_.check_memory(api.malloc(range.begin, bytes), "cudaMalloc", [&] { return shortage_of(range); });
  if (range.begin % space_.granule_bytes() != 0) {
    context_.forget(give_back(range));
    throw DeviceError(context_.owner() + ": cudaMalloc(" + format_size(bytes) +
                      ") returned memory that is not aligned to " + format_size(space_.granule_bytes()));
  }
  return range;
}

CudaStatus CudaMemory::give_back(AddressRange reservation) {
  CudaApi& api = context_.api();
  return virtual_memory_ ? api.address_free(reservation) : api.free(reservation.begin);
}

void CudaMemory::unreserve(AddressRange reservation) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_unused(reservation);
  for (const AddressRange piece : unused_pieces(reservation)) {
    context_.check(unmap(piece), "cuMemUnmap", [piece] { return format_size(piece.bytes); });
  }
  context_.check(give_back(reservation), virtual_memory_ ? "cuMemAddressFree" : "cudaFree",
                 [&] { return format_size(reservation.bytes); });
  space_.remove(reservation);
}

void CudaMemory::commit(AddressRange range) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_committable(range);
  space_.committed().assign(range, Protection::kAccessible);
  if (!virtual_memory_) {
    return;
  }
  try {
    map_all(range);
  } catch (...) {
    // Erases exactly the assigned interval, which splits no interval and so needs no memory.
    space_.committed().erase(range);
    for (const AddressRange piece : unused_pieces(range)) {
      context_.forget(unmap(piece));
    }
    throw;
  }
}

void CudaMemory::map_all(AddressRange range) {
  AddressRange mapped{.begin = next_piece(range.begin, range.end()).begin, .bytes = 0};
  while (mapped.end() < range.end()) {
    const AddressRange piece = next_piece(mapped.end(), range.end());
    if (!pieces_.contains(piece.begin)) {
      map(piece, range);
    }
    mapped.bytes += piece.bytes;
  }
  // `mapped` consists of whole pieces, as CUDA requires.
  context_.check_memory(context_.api().memory_set_access(mapped, users_), "cuMemSetAccess",
                        [&] { return shortage_of(range); });
}

AddressRange CudaMemory::next_piece(std::uint64_t address, std::uint64_t end) const {
  const auto after = pieces_.upper_bound(address);
  if (after != pieces_.begin() && std::prev(after)->first + std::prev(after)->second > address) {
    return {.begin = std::prev(after)->first, .bytes = std::prev(after)->second};
  }
  const std::uint64_t vacant = after == pieces_.end() ? end : std::min(end, after->first);
  return {.begin = address, .bytes = std::min(vacant, tile_at(address).end()) - address};
}

AddressRange CudaMemory::tile_at(std::uint64_t address) const {
  const std::uint64_t begin = space_.reservation_of(address).begin;
  const std::uint64_t part = std::bit_floor((address - begin) / kTilesPerOffset);
  const std::uint64_t most = std::max(kMaxTile, space_.granule_bytes());
  const std::uint64_t bytes = std::clamp(part, space_.granule_bytes(), most);
  return {.begin = begin + (address - begin) / bytes * bytes, .bytes = bytes};
}

void CudaMemory::map(AddressRange piece, AddressRange committing) {
  CudaApi& api = context_.api();
  const auto shortage = [&] { return shortage_of(committing); };
  const auto place = pieces_.emplace(piece.begin, piece.bytes).first;
  std::uint64_t handle = 0;
  const CudaStatus created = api.memory_create(handle, piece.bytes, kind_);
  const CudaStatus mapped = created == CudaStatus::kSuccess ? api.memory_map(piece, handle) : created;
  if (mapped != CudaStatus::kSuccess) {
    pieces_.erase(place);
  }
  context_.check_memory(created, "cuMemCreate", shortage);
  const CudaStatus released = api.memory_release(handle);
  context_.check_memory(mapped, "cuMemMap", shortage);
  context_.check(released, "cuMemRelease", [&] { return format_size(piece.bytes); });
}

void CudaMemory::decommit(AddressRange range) {
  const CudaContext::Scope scope = context_.enter();
  const std::lock_guard lock(mutex_);
  space_.check_decommittable(range);
  space_.committed().erase(range);
  if (!virtual_memory_) {
    return;
  }
  for (const AddressRange piece : unused_pieces(range)) {
    const CudaStatus status = unmap(piece);
    if (status != CudaStatus::kSuccess) {
      const std::uint64_t begin = std::max(piece.begin, range.begin);
      space_.committed().assign({.begin = begin, .bytes = range.end() - begin}, Protection::kAccessible);
    }
    context_.check(status, "cuMemUnmap", [piece] { return format_size(piece.bytes); });
  }
}

bool CudaMemory::committed(AddressRange range) const {
  const std::lock_guard lock(mutex_);
  return space_.is_committed(range);
}

bool CudaMemory::is_used(AddressRange piece) const {
  bool any = false;
  space_.committed().visit(piece,
                           [&](AddressRange, const Protection* state) { any = any || state != nullptr; });
  return any;
}

std::vector<AddressRange> CudaMemory::unused_pieces(AddressRange range) const {
  std::vector<AddressRange> unused;
  for (auto it = pieces_.lower_bound(next_piece(range.begin, range.end()).begin);
       it != pieces_.end() && it->first < range.end(); ++it) {
    const AddressRange piece{.begin = it->first, .bytes = it->second};
    if (!is_used(piece)) {
      unused.push_back(piece);
    }
  }
  return unused;
}

CudaStatus CudaMemory::unmap(AddressRange piece) noexcept {
  const CudaStatus status = context_.api().memory_unmap(piece);
  if (status == CudaStatus::kSuccess) {
    pieces_.erase(piece.begin);
  }
  return status;
}

MemoryShortage CudaMemory::shortage_of(AddressRange committing) const {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  context_.forget(context_.api().memory_info(free, total));
  return {.asked = committing.bytes, .in_use = total - free, .budget = total, .would_have_fitted = free};
}

}  // namespace vdnn
