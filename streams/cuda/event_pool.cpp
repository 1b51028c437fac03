#include "streams/cuda/event_pool.h"

namespace vdnn {

EventPool::~EventPool() {
  const CudaContext::Scope scope = context_.enter_anyway();
  for (const CudaEvent event : free_) {
    context_.forget(context_.api().event_destroy(event));
  }
}

EventPool::Event EventPool::take() {
  const std::lock_guard lock(mutex_);
  CudaEvent event = nullptr;
  if (free_.empty()) {
    free_.reserve(made_ + 1);
    context_.check(context_.api().event_create(event, kind_), "cudaEventCreateWithFlags");
    ++made_;
  } else {
    event = free_.back();
    free_.pop_back();
  }
  return {event, GiveBack{this}};
}

void EventPool::give_back(CudaEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

}  // namespace vdnn
