#include "src/stash/fetch_window.h"

#include <algorithm>

namespace vdnn::stash {

namespace {

// Whether the tensor may be fetched ahead of this read: the tensor is away, it is not listed for a fetch, no
// reader waits for it, and this read of it is still to come.
bool may_come_back_for(const ScheduledRead& read, const StashedTensor& tensor) {
  return tensor.where == Where::kAway && !tensor.is_missing && !tensor.is_listed &&
         tensor.reads <= read.earlier;
}

}  // namespace

FetchWindow::Next FetchWindow::next(const StepUnderWay& step, TensorTable& tensors, StashHandle reading,
                                    std::uint64_t ahead_bytes) {
  if (step.kind() == nullptr) {
    return {};
  }
  const StepPlan& plan = step.kind()->plan;
  next_ = std::max(next_, step.reads());
  for (; next_ < plan.reads.size(); ++next_) {
    const ScheduledRead& read = plan.reads[next_];
    if (read.fetch_after > step.reads() || read.tensor >= step.handles().size()) {
      return {};  // it is too early, or the tensor has not been saved yet
    }
    const StashHandle handle = step.handles()[read.tensor];
    StashedTensor* const tensor = tensors.find(handle);
    if (tensor == nullptr || !may_come_back_for(read, *tensor)) {
      continue;
    }
    const bool fits = ahead_bytes == 0 || ahead_bytes + tensor->bytes() <= plan.ahead_bytes;
    // The tensor that is being read is not fetched for a later read, since the caller still holds its target.
    return fits && handle != reading ? Next{.handle = handle, .tensor = tensor} : Next{};
  }
  return {};
}

bool FetchWindow::may_have_next(const StepUnderWay& step, std::size_t reads) const {
  if (step.kind() == nullptr) {
    return false;
  }
  const StepPlan& plan = step.kind()->plan;
  const std::size_t next = std::max(next_, reads);
  return next < plan.reads.size() && plan.reads[next].fetch_after <= reads;
}

}  // namespace vdnn::stash
