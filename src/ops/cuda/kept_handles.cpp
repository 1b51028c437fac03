#include "src/ops/cuda/kept_handles.h"

#include <algorithm>

namespace vdnn::cuda {

// `make` may take seconds, so take() calls it without the lock, which other GPUs' handles need.
void* KeptHandles::take(int ordinal, const std::function<void*()>& make) {
  std::unique_lock lock(mutex_);
  Kept& mine = claim(ordinal);
  if (mine.handle != nullptr) {
    return mine.handle;
  }
  lock.unlock();
  void* made = nullptr;
  try {
    made = make();
  } catch (...) {
    lock.lock();
    mine.in_use = false;
    throw;
  }
  lock.lock();
  mine.handle = made;
  return made;
}

KeptHandles::Kept& KeptHandles::claim(int ordinal) {
  const auto idle = std::ranges::find_if(
      all_, [ordinal](const Kept& each) { return each.ordinal == ordinal && !each.in_use; });
  Kept& mine = idle == all_.end() ? all_.emplace_back(Kept{.ordinal = ordinal}) : *idle;
  mine.in_use = true;
  return mine;
}

void KeptHandles::give_back(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  std::ranges::find(all_, handle, &Kept::handle)->in_use = false;
}

// Never destroyed, since CUDA may have been unloaded when static destructors run.
KeptHandles& cudnn_handles() {
  static auto* const kHandles = new KeptHandles;
  return *kHandles;
}

KeptHandles& cublaslt_handles() {
  static auto* const kHandles = new KeptHandles;
  return *kHandles;
}

}  // namespace vdnn::cuda
