#include "src/stash/leaving_order.h"

#include <algorithm>

namespace vdnn::stash {

std::optional<StashHandle> LeavingOrder::next(TensorTable& tensors, const std::vector<StashHandle>& handles) {
  const auto is_kept = [&](std::size_t tensor) {
    const StashedTensor* const found = tensors.find(handles[tensor]);
    return found != nullptr && found->where == Where::kKept;
  };
  while (first_kept_ < handles.size() && !is_kept(first_kept_)) {
    ++first_kept_;
  }
  next_ = std::max(next_, first_kept_);
  while (next_ < handles.size() && !is_kept(next_)) {
    ++next_;
  }
  return next_ < handles.size() ? std::optional(handles[next_]) : std::nullopt;
}

}  // namespace vdnn::stash
