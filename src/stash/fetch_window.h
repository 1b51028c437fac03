#pragma once
// The fetches ahead of a step that goes by a plan: those of its reads in order, each from the read on that
// the plan gives it, and as far as the window goes.

#include <cstddef>
#include <cstdint>

#include "src/stash/step_under_way.h"
#include "src/stash/tensor_table.h"

namespace vdnn::stash {

// Not synchronised. For one step.
class FetchWindow {
 public:
  struct Next {
    StashHandle handle = 0;
    StashedTensor* tensor = nullptr;  // null: none is to be fetched now
  };

  // The step goes like another kind from now on.
  void restart(const StepUnderWay& step) { next_ = step.reads(); }
  // While `reading` is read. `ahead_bytes`: fetched, or to be fetched, and not read.
  Next next(const StepUnderWay& step, TensorTable& tensors, StashHandle reading, std::uint64_t ahead_bytes);
  // Whether next() may have one once there are `reads` of the step. Where this is false it has none.
  bool may_have_next(const StepUnderWay& step, std::size_t reads) const;
  // The tensor of next() is to be fetched; until it is, it does not come again.
  void name(StashedTensor& tensor) {
    tensor.is_named = true;
    ++next_;
  }

 private:
  std::size_t next_ = 0;  // in the plan's reads
};

}  // namespace vdnn::stash
