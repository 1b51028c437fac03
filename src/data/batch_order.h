#pragma once
// BatchOrder (vdnn/dataset.h) for readers that go through an epoch in order: a permutation of all samples is
// made once an epoch, not once a batch.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "vdnn/dataset.h"

namespace vdnn {

class BatchCursor {
 public:
  // Throws InvalidArgument when `order` has no samples or no place in its batches.
  explicit BatchCursor(const BatchOrder& order);

  // What order.indices(number) is; valid until the next call.
  std::span<const std::uint64_t> indices(std::uint64_t number);

 private:
  BatchOrder order_;
  std::optional<std::uint64_t> epoch_;  // whose order `samples_` is in
  std::vector<std::uint64_t> samples_;
};

}  // namespace vdnn
