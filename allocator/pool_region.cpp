#include "allocator/pool_region.h"

#include <utility>
#include <vector>

#include "allocator/pool_tally.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Blocks that stay hold apart what comes and goes; the more room there is, the longer a large block finds
// addresses in one piece.
constexpr std::uint64_t kAddressesPerBudget = 4;

}  // namespace

PoolRegion::Reservation::~Reservation() {
  try {
    backend_.unreserve(range);
  } catch (...) {
    // A device that is lost has no addresses to give back to.
  }
}

PoolRegion::PoolRegion(PoolBackend& backend, BlockKind kind, std::uint64_t budget, std::uint64_t unit,
                       PoolFigure& reserved_of_all)
    : backend_(backend),
      kind_(kind),
      unit_(unit),
      reservation_(backend, checked_multiply(budget, kAddressesPerBudget)),
      range_(reservation_.range),
      reserved_of_all_(reserved_of_all),
      blocks_(unit),
      table_(range_.bytes, backend.properties().granule_bytes, unit) {
  blocks_.append_vacancy(range_.bytes);
}

PoolRegion::~PoolRegion() {
  try {
    std::uint64_t end = range_.bytes;
    const auto give_back = [&](std::uint64_t from, std::uint64_t to) {
      if (from < to) {
        backend_.decommit(at(from, to - from));
      }
    };
    blocks_.for_each_from_the_end([&](Tlsf::Extent extent, Tlsf::State state) {
      if (state == Tlsf::State::kVacant) {
        give_back(extent.end(), end);
        end = extent.offset;
      }
    });
    give_back(0, end);
  } catch (...) {
    // A device that is lost has no memory to give back to.
  }
}

void PoolRegion::commit(Tlsf::Extent hole) {
  backend_.commit(at(hole.offset, hole.bytes));
  try {
    blocks_.fill(hole);
  } catch (...) {
    backend_.decommit(at(hole.offset, hole.bytes));
    throw;
  }
  add(reserved, hole.bytes);
  add(reserved_of_all_, hole.bytes);
}

void PoolRegion::decommit(Tlsf::Index block, Tlsf::Extent extent) {
  // One by one: a device may refuse in the middle.
  const std::uint64_t granule = backend_.properties().granule_bytes;
  for (std::uint64_t end = extent.end(); end > extent.offset; end -= granule) {
    blocks_.prepare_to_vacate(block);
    backend_.decommit(at(end - granule, granule));
    blocks_.vacate(block, {.offset = end - granule, .bytes = granule});
    remove(reserved, granule);
    remove(reserved_of_all_, granule);
  }
}

}  // namespace vdnn
