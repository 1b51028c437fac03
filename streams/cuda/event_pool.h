#pragma once
// Events that are created once and reused.

#include <memory>
#include <mutex>
#include <vector>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// Thread-safe. The caller holds a CudaContext::Scope.
class EventPool {
 public:
  struct GiveBack {
    EventPool* pool = nullptr;
    void operator()(CudaEvent event) const noexcept { pool->give_back(event); }
  };
  // An event that its destructor returns to the pool, which must outlive the event. The next user may record
  // it again immediately: a stream's wait refers to the record at the time when the wait was submitted, and
  // a wait of the host can at worst last too long.
  using Event = std::unique_ptr<void, GiveBack>;

  EventPool(CudaContext& context, const CudaEventKind& kind) : context_(context), kind_(kind) {}
  // All events must have been given back.
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  Event take();

 private:
  void give_back(CudaEvent event) noexcept;

  CudaContext& context_;
  const CudaEventKind kind_;
  std::mutex mutex_;  // guards the members below
  std::size_t made_ = 0;
  std::vector<CudaEvent> free_;  // has capacity for all events that were made
};

}  // namespace vdnn
