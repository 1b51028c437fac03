#pragma once
// Fetches ahead in a step that follows a plan: in the order of its reads, each no earlier than the plan
// specifies, and as far as the window allows.

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

  // Call when the step follows another kind from now on.
  void restart(const StepUnderWay& step) { next_ = step.reads(); }
  // The next tensor to fetch while `reading` is read. `ahead_bytes`: fetched or named to be fetched, and not
  // read.
  Next next(const StepUnderWay& step, TensorTable& tensors, StashHandle reading, std::uint64_t ahead_bytes);
  // Whether next() may name a tensor once the step has had `reads` reads. If false, it names none.
  bool may_have_next(const StepUnderWay& step, std::size_t reads) const;
  // Marks the tensor of next() as to be fetched; next() does not name it again before that.
  void name(StashedTensor& tensor) {
    tensor.is_named = true;
    ++next_;
  }

 private:
  std::size_t next_ = 0;  // in the plan's reads
};

}  // namespace vdnn::stash
