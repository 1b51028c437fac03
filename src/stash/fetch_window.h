#pragma once
// Fetches ahead in a step that follows a plan. They run in the order of the plan's reads, each no earlier
// than the plan specifies, and as far ahead as the window allows.

#include <cstddef>
#include <cstdint>

#include "src/stash/step_under_way.h"
#include "src/stash/tensor_table.h"

namespace vdnn::stash {

// Not synchronised. Serves one step.
class FetchWindow {
 public:
  struct Next {
    StashHandle handle = 0;
    StashedTensor* tensor = nullptr;  // null: fetch none now
  };

  // Call when the step follows another kind from now on.
  void restart(const StepUnderWay& step) { next_ = step.reads(); }
  // The next tensor to fetch while `reading` is read. `ahead_bytes`: the bytes fetched, or named to be
  // fetched, and not yet read.
  Next next(const StepUnderWay& step, TensorTable& tensors, StashHandle reading, std::uint64_t ahead_bytes);
  // Whether next() may name a tensor once the step has had `reads` reads. If false, it names none.
  bool may_have_next(const StepUnderWay& step, std::size_t reads) const;
  // Marks the tensor that next() returned as to be fetched. next() does not name it again until it has been
  // fetched.
  void name(StashedTensor& tensor) {
    tensor.is_named = true;
    ++next_;
  }

 private:
  std::size_t next_ = 0;  // index in the plan's reads
};

}  // namespace vdnn::stash
