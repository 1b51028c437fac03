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
  // Returns to the pool, which must outlive it, and may be recorded anew at once. A stream's wait refers to
  // the record at the time of its submission; a host's wait can at worst last too long.
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
  std::mutex mutex_;  // guards what follows
  std::size_t made_ = 0;
  std::vector<CudaEvent> free_;  // has room for all that were made
};

}  // namespace vdnn
