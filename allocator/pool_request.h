#pragma once
// How a request becomes a block: its kind, and the size that it is rounded up to. Small blocks are rounded to
// size classes, all others to the unit of the pool.

#include <algorithm>
#include <cstdint>

#include "allocator/size_classes.h"
#include "vdnn/pool_backend.h"
#include "vdnn/size.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

struct PoolRequest {
  std::uint64_t bytes = 1;  // as asked, but at least 1
  BlockKind kind = BlockKind::kSmall;
  unsigned size_class = SizeClasses::kClasses;  // of small blocks; kClasses for all others
};

// Immutable.
class RequestRounding {
 public:
  RequestRounding(const PoolBackendProperties& backend, const StreamPoolOptions& options)
      : unit_(backend.alignment_bytes),
        classes_(backend.alignment_bytes),
        small_bytes_(std::min(options.small_bytes, backend.granule_bytes)) {}

  PoolRequest request(std::uint64_t bytes, BlockLife life) const {
    const std::uint64_t asked = std::max<std::uint64_t>(bytes, 1);
    if (asked > small_bytes_) {
      return {.bytes = asked, .kind = BlockKind::kLarge};
    }
    if (life == BlockLife::kPersistent) {
      return {.bytes = asked, .kind = BlockKind::kPersistent};
    }
    return {.bytes = asked, .kind = BlockKind::kSmall, .size_class = classes_.class_of(asked)};
  }
  // Throws InvalidArgument when rounding overflows.
  std::uint64_t block_bytes(const PoolRequest& request) const {
    return request.kind == BlockKind::kSmall ? classes_.bytes_of(request.size_class)
                                             : round_up(request.bytes, unit_);
  }
  // The largest request that a free block of `bytes` serves; 0 if it serves none.
  std::uint64_t largest_small_request(std::uint64_t bytes) const {
    return std::min(classes_.whole_class(bytes), small_bytes_);
  }
  std::uint64_t largest_large_request(std::uint64_t bytes) const { return bytes > small_bytes_ ? bytes : 0; }

 private:
  const std::uint64_t unit_;
  const SizeClasses classes_;
  const std::uint64_t small_bytes_;
};

}  // namespace vdnn
