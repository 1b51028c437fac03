#pragma once
// The order in which a step offers its kept tensors to leave: the oldest first, because backward reads them
// last (Belady's rule for a last-in first-out order). Each is offered once between two saves.

#include <cstddef>
#include <optional>
#include <vector>

#include "src/stash/tensor_table.h"

namespace vdnn::stash {

// Not synchronised. For one step.
class LeavingOrder {
 public:
  // The tensor to offer next; absent: every kept tensor has been offered. `handles`: by tensor of the step.
  std::optional<StashHandle> next(TensorTable& tensors, const std::vector<StashHandle>& handles);
  void note_offered() { ++next_; }
  void note_saved() { next_ = first_kept_; }

 private:
  std::size_t first_kept_ = 0;  // no tensor before it is kept
  std::size_t next_ = 0;        // all before it are not kept, or have been offered since the last save
};

}  // namespace vdnn::stash
