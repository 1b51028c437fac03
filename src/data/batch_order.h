#pragma once
// A faster BatchOrder (vdnn/dataset.h) for readers that read an epoch's batches in order. The cursor computes
// the permutation of all samples once per epoch, not once per batch.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "vdnn/dataset.h"

namespace vdnn {

class BatchCursor {
 public:
  // Throws InvalidArgument if `order` has no samples, or if its batch cannot be divided into its parts.
  explicit BatchCursor(const BatchOrder& order);

  // Returns the same indices as order.indices(number). The span is valid until the next call.
  std::span<const std::uint64_t> indices(std::uint64_t number);

 private:
  BatchOrder order_;
  std::optional<std::uint64_t> epoch_;  // the epoch whose samples are in `samples_`
  std::vector<std::uint64_t> samples_;
};

}  // namespace vdnn
