#pragma once
// The order in which a step offers its kept tensors to leave: the oldest first, because the backward pass
// reads them last (Belady's rule for last-in, first-out). Each tensor is offered once between two saves.

#include <cstddef>
#include <optional>
#include <vector>

#include "src/stash/tensor_table.h"

namespace vdnn::stash {

// Not synchronised. An object is for one step.
class LeavingOrder {
 public:
  // The tensor to offer next; absent if every kept tensor has been offered. `handles`: by tensor of the step.
  std::optional<StashHandle> next(TensorTable& tensors, const std::vector<StashHandle>& handles);
  void note_offered() { ++next_; }
  void note_saved() { next_ = first_kept_; }

 private:
  std::size_t first_kept_ = 0;  // index of the first tensor that may be kept
  std::size_t next_ = 0;        // index of the first tensor that may have to be offered
};

}  // namespace vdnn::stash
