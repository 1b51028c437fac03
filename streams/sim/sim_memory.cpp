#include "streams/sim/sim_memory.h"

#include <iterator>

#include "streams/mapping.h"
#include "streams/sim/findings.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kDeviceBegin = std::uint64_t{1} << 40;
constexpr std::uint64_t kHostBegin = std::uint64_t{1} << 60;
constexpr std::uint64_t kHostEnd = std::uint64_t{1} << 63;

}  // namespace

SimMemory::SimMemory(std::string owner, std::uint64_t granule_bytes)
    : owner_(std::move(owner)),
      granule_bytes_(granule_bytes),
      next_reservation_(round_up(kDeviceBegin, granule_bytes)),
      next_pinned_(kHostBegin) {}

void SimMemory::refuse(const std::string& what, AddressRange range) const {
  throw InvalidArgument(owner_ + ": " + what + ": " + format_range(range));
}

// One unit stays free after each piece, so that an access past a piece's end does not hit the next piece.
AddressRange SimMemory::take(std::uint64_t& next, std::uint64_t bytes, std::uint64_t unit,
                             std::uint64_t limit) {
  const std::uint64_t left = limit - next - unit;
  if (bytes > left) {
    throw OutOfMemory(owner_ + ": address space",
                      {.asked = bytes, .budget = limit, .would_have_fitted = left});
  }
  const AddressRange range{.begin = next, .bytes = bytes};
  next += round_up(bytes, unit) + unit;
  return range;
}

AddressRange SimMemory::reserve(std::uint64_t bytes) {
  if (bytes > kHostBegin) {
    throw OutOfMemory(owner_ + ": address space", {.asked = bytes, .budget = kHostBegin});
  }
  const AddressRange range =
      take(next_reservation_, round_up(bytes, granule_bytes_), granule_bytes_, kHostBegin);
  reservations_.emplace(range.begin, range.bytes);
  return range;
}

void SimMemory::unreserve(AddressRange reservation) {
  const auto it = reservations_.find(reservation.begin);
  if (it == reservations_.end() || it->second != reservation.bytes) {
    refuse("unreserve of what is not a whole reservation", reservation);
  }
  committed_.visit(reservation, [&](AddressRange piece, const Nothing* there) {
    if (there != nullptr) {
      refuse("unreserve of memory that is still committed", piece);
    }
  });
  reservations_.erase(it);
}

void SimMemory::check_granules(AddressRange range) const {
  if (range.bytes == 0 || range.begin % granule_bytes_ != 0 || range.bytes % granule_bytes_ != 0) {
    refuse("commit and decommit require whole granules of " + format_size(granule_bytes_), range);
  }
}

void SimMemory::commit(AddressRange range) {
  check_granules(range);
  const auto after = reservations_.upper_bound(range.begin);
  if (after == reservations_.begin()) {
    refuse("commit outside any reservation", range);
  }
  const auto& [begin, bytes] = *std::prev(after);
  if (!AddressRange{.begin = begin, .bytes = bytes}.contains(range)) {
    refuse("commit outside any reservation", range);
  }
  committed_.visit(range, [&](AddressRange piece, const Nothing* there) {
    if (there != nullptr) {
      refuse("commit of memory that is committed", piece);
    }
  });
  committed_.assign(range, {});
}

void SimMemory::decommit(AddressRange range) {
  check_granules(range);
  visit_missing(Space::kDevice, range,
                [&](AddressRange piece) { refuse("decommit of memory that is not committed", piece); });
  committed_.erase(range);
  inaccessible_.erase(range);
}

AddressRange SimMemory::allocate_pinned(std::uint64_t bytes) {
  const AddressRange block = take(next_pinned_, bytes, kPageBytes, kHostEnd);
  pinned_blocks_.emplace(block.begin, block.bytes);
  pinned_.assign(block, {});
  return block;
}

void SimMemory::free_pinned(AddressRange block) {
  const auto it = pinned_blocks_.find(block.begin);
  if (it == pinned_blocks_.end() || it->second != block.bytes) {
    refuse("free of what is not a page-locked block", block);
  }
  pinned_blocks_.erase(it);
  pinned_.erase(block);
}

void SimMemory::protect(AddressRange range, Protection protection) {
  if (protection == Protection::kInaccessible) {
    inaccessible_.assign(range, {});
  } else {
    inaccessible_.erase(range);
  }
}

SimMemory::Space SimMemory::space_of(std::uint64_t address) {
  return address < kHostBegin ? Space::kDevice : Space::kHost;
}

}  // namespace vdnn
