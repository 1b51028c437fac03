#include "allocator/slab_region.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace vdnn {

SlabRegion::SlabRegion(LargeRegion& large, StreamOrder& order, std::uint64_t slab_bytes, std::uint64_t unit)
    : large_(large), order_(order), slab_bytes_(slab_bytes), blocks_(unit) {
  blocks_.append_vacancy(large.address_bytes());
}

bool SlabRegion::add_slab(const StreamKnowledge& known) {
  const std::optional<Tlsf::Block> slab = large_.allocate(slab_bytes_, known);
  if (!slab) {
    return false;
  }
  const Tlsf::Extent extent{.offset = slab->offset, .bytes = slab->bytes};
  try {
    blocks_.prepare_to_commit(extent, slab->frontier);
    slabs_.insert(extent.offset);
  } catch (...) {
    large_.free(extent.offset, extent.bytes, {});
    throw;
  }
  blocks_.commit(extent, slab->frontier);
  return true;
}

template <class Visit>
void SlabRegion::for_each_free_slab(const Visit& visit) const {
  blocks_.for_each_free([&](Tlsf::Index block, Tlsf::Extent free, const Frontier& frontier) {
    for (auto slab = slabs_.lower_bound(free.offset);
         slab != slabs_.end() && *slab + slab_bytes_ <= free.end(); ++slab) {
      visit(block, Tlsf::Extent{.offset = *slab, .bytes = slab_bytes_}, frontier);
    }
  });
}

bool SlabRegion::reclaim() {
  struct Free {
    Tlsf::Index block = 0;
    Tlsf::Extent slab;
    Frontier frontier;
  };
  std::vector<Free> all;
  for_each_free_slab([&](Tlsf::Index block, Tlsf::Extent slab, const Frontier& frontier) {
    all.push_back({.block = block, .slab = slab, .frontier = frontier});
  });
  // In descending order of offset, since a free block may contain several slabs: after a slab is decommitted,
  // the block's index stands for the part in front of that slab.
  std::ranges::sort(all, std::greater<>(), [](const Free& free) { return free.slab.offset; });
  for (const Free& free : all) {
    blocks_.prepare_to_decommit(free.block);
    large_.free(free.slab.offset, free.slab.bytes, free.frontier);
    blocks_.decommit(free.block, free.slab);
    slabs_.erase(free.slab.offset);
  }
  return !all.empty();
}

}  // namespace vdnn
