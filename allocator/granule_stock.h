#pragma once
// The granules of a pool: how many it has within its budget, wherever they are mapped.
//
// A granule that the backend refuses to take back stays counted. It serves the next request, or is given back
// again later.

#include <cstdint>
#include <span>
#include <vector>

#include "vdnn/pool_backend.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Guarded by the pool's lock.
class GranuleStock {
 public:
  GranuleStock(PoolBackend& backend, std::uint64_t budget_bytes)
      : backend_(backend),
        granule_bytes_(backend.properties().granule_bytes),
        budget_bytes_(budget_bytes / granule_bytes_ * granule_bytes_) {}
  ~GranuleStock();
  GranuleStock(const GranuleStock&) = delete;
  GranuleStock& operator=(const GranuleStock&) = delete;

  std::uint64_t granule_bytes() const { return granule_bytes_; }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  const PoolFigure& reserved() const { return reserved_; }
  void reset_peak() { reserved_.peak = reserved_.current; }
  // Bytes that take() may still return: the rest of the budget, and granules that the backend has refused to
  // take back.
  std::uint64_t left() const { return budget_bytes_ - reserved_.current + refused_bytes(); }
  // Bytes of granules that the backend has refused to take back. They still count as reserved.
  std::uint64_t refused_bytes() const { return refused_.size() * granule_bytes_; }

  // Takes `granules` granules, which left() must allow. Throws what the backend throws, and then nothing
  // changes.
  std::vector<GranuleHandle> take(std::uint64_t granules);
  // Throws what the backend throws; even then, the stock owns the granule.
  void give_back(GranuleHandle granule);
  // Likewise for callers that report another failure.
  void give_back_anyway(std::span<const GranuleHandle> granules) noexcept;
  // Gives back all granules that the backend has refused; throws if it refuses again.
  void give_back_refused();

 private:
  PoolBackend& backend_;
  const std::uint64_t granule_bytes_;
  const std::uint64_t budget_bytes_;
  PoolFigure reserved_;
  std::vector<GranuleHandle> refused_;  // has room for all that are counted
};

}  // namespace vdnn
