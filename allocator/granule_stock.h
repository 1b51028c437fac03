#pragma once
// Creates the granules of a pool and counts them against its budget, wherever they are mapped.
//
// A granule that the backend refuses to take back stays counted. The next request uses it, or a later call
// gives it back.

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

  // Returns `granules` granules, which must not be more than left() bytes. If the backend throws, this
  // function throws the same, and nothing has changed.
  std::vector<GranuleHandle> take(std::uint64_t granules);
  // Gives a granule back to the backend. If the backend throws, this function throws the same; even then,
  // the stock owns the granule.
  void give_back(GranuleHandle granule);
  // Gives back several granules. Does not throw: for callers that already report another failure.
  void give_back_anyway(std::span<const GranuleHandle> granules) noexcept;
  // Gives back all granules that the backend has refused; throws if the backend refuses again.
  void give_back_refused();

 private:
  PoolBackend& backend_;
  const std::uint64_t granule_bytes_;
  const std::uint64_t budget_bytes_;
  PoolFigure reserved_;
  std::vector<GranuleHandle> refused_;  // has capacity for all granules that are counted
};

}  // namespace vdnn
