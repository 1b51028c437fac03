#pragma once
// The figures and pieces that a stream pool reports about itself, gathered from its parts.

#include <cstdint>
#include <vector>

#include "allocator/pool_blocks.h"
#include "allocator/pool_memory.h"
#include "allocator/pool_request.h"
#include "allocator/pool_tally.h"
#include "allocator/stream_order.h"
#include "vdnn/error.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Counts of the pool's calls.
struct CallCounters {
  std::uint64_t exhausted = 0;  // calls of StreamPoolOptions::on_exhausted
  std::uint64_t refused = 0;    // requests
  std::uint64_t freed_unordered = 0;
};

// Guarded by the pool's lock. The locks of streams are taken under it.
class PoolReport {
 public:
  // All arguments must outlive the report.
  PoolReport(const RequestRounding& rounding, StreamOrder& order, PoolMemory& memory, PoolBlocks& blocks,
             PoolPeaks& peaks)
      : rounding_(rounding), order_(order), memory_(memory), blocks_(blocks), peaks_(peaks) {}

  // Like the functions of StreamPool with the same names.
  MemoryShortage shortage(std::uint64_t asked) const;
  StreamPoolStatistics statistics(const CallCounters& calls) const;
  StreamPoolStatistics statistics_of(StreamHandle stream) const;
  void reset_peaks();
  std::vector<PoolPiece> pieces() const;

 private:
  PoolFigures handed_out(std::size_t kind) const;
  void describe(PoolPiece& piece) const;

  const RequestRounding& rounding_;
  StreamOrder& order_;
  PoolMemory& memory_;
  PoolBlocks& blocks_;
  PoolPeaks& peaks_;
};

}  // namespace vdnn
