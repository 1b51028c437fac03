#pragma once
// In a step that follows a plan, selects which tensors are fetched ahead of their reads. Fetches run in the
// order of the plan's reads, each no earlier than the plan specifies, and as far ahead as the window allows.

#include <cstddef>
#include <cstdint>

#include "src/stash/step_under_way.h"
#include "src/stash/tensor_table.h"

namespace vdnn::stash {

// Not synchronised. An object is for one step.
class FetchWindow {
 public:
  struct Next {
    StashHandle handle = 0;
    StashedTensor* tensor = nullptr;  // null: fetch none now
  };

  // Call it when the step begins to follow another kind.
  void restart(const StepUnderWay& step) { next_ = step.reads(); }
  // The next tensor to fetch while `reading` is read. `ahead_bytes`: bytes of the tensors that were fetched
  // ahead and have not been read, and of those that the caller lists for a fetch in the same call.
  Next next(const StepUnderWay& step, TensorTable& tensors, StashHandle reading, std::uint64_t ahead_bytes);
  // Whether next() may return a tensor once the step has had `reads` reads. If false, next() returns none.
  bool may_have_next(const StepUnderWay& step, std::size_t reads) const;
  // Call it when the tensor that next() returned is listed for a fetch. next() does not return that tensor
  // again until it has been fetched.
  void note_listed(StashedTensor& tensor) {
    tensor.is_listed = true;
    ++next_;
  }

 private:
  std::size_t next_ = 0;  // index in the plan's reads
};

}  // namespace vdnn::stash
