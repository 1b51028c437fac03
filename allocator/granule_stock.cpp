#include "allocator/granule_stock.h"

#include <algorithm>

#include "allocator/pool_tally.h"

namespace vdnn {

GranuleStock::~GranuleStock() {
  // Tries several times, since no later call can. A lost device never takes memory back.
  for (int attempts = 8; attempts > 0 && !refused_.empty(); --attempts) {
    try {
      give_back_refused();
    } catch (...) {
      continue;
    }
  }
}

std::vector<GranuleHandle> GranuleStock::take(std::uint64_t granules) {
  const std::uint64_t counted = reserved_.current / granule_bytes_;
  if (refused_.capacity() < counted + granules) {
    refused_.reserve(std::max(counted + granules, 2 * counted));
  }
  std::vector<GranuleHandle> taken;
  taken.reserve(granules);
  try {
    while (taken.size() < granules) {
      if (refused_.empty()) {
        refused_.push_back(backend_.create_granule());
        add(reserved_, granule_bytes_);
      }
      taken.push_back(refused_.back());
      refused_.pop_back();
    }
  } catch (...) {
    give_back_anyway(taken);
    throw;
  }
  return taken;
}

void GranuleStock::give_back(GranuleHandle granule) {
  refused_.push_back(granule);
  backend_.destroy_granule(granule);
  refused_.pop_back();
  remove(reserved_, granule_bytes_);
}

void GranuleStock::give_back_anyway(std::span<const GranuleHandle> granules) noexcept {
  for (const GranuleHandle granule : granules) {
    try {
      give_back(granule);
    } catch (...) {
      // give_back() has kept the granule in refused_.
    }
  }
}

void GranuleStock::give_back_refused() {
  while (!refused_.empty()) {
    const GranuleHandle granule = refused_.back();
    refused_.pop_back();
    give_back(granule);
  }
}

}  // namespace vdnn
