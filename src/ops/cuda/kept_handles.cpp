#include "src/ops/cuda/kept_handles.h"

#include <algorithm>

namespace vdnn::cuda {

void* KeptHandles::take(int ordinal, const std::function<void*()>& make) {
  const std::lock_guard lock(mutex_);
  const auto idle = std::ranges::find_if(
      all_, [ordinal](const Kept& each) { return each.ordinal == ordinal && !each.in_use; });
  if (idle != all_.end()) {
    idle->in_use = true;
    return idle->handle;
  }
  all_.reserve(all_.size() + 1);  // what is made can then be kept
  all_.push_back({.ordinal = ordinal, .handle = make(), .in_use = true});
  return all_.back().handle;
}

void KeptHandles::give_back(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  std::ranges::find(all_, handle, &Kept::handle)->in_use = false;
}

// Never destroyed: static destructors run when CUDA may have been unloaded.
KeptHandles& cudnn_handles() {
  static auto* const kHandles = new KeptHandles;
  return *kHandles;
}

KeptHandles& cublaslt_handles() {
  static auto* const kHandles = new KeptHandles;
  return *kHandles;
}

}  // namespace vdnn::cuda
