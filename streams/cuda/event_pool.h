#pragma once
// Events that are made once and used again.

#include <memory>
#include <mutex>
#include <vector>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// Thread-safe. Calls are made within a scope of the context.
class EventPool {
 public:
  struct GiveBack {
    EventPool* pool = nullptr;
    void operator()(CudaEvent event) const noexcept { pool->give_back(event); }
  };
  // Goes back to the pool, which must outlive it. It may be recorded anew at once: a wait on the device is
  // for the record at the time of the wait's submission, and a wait of the host only lasts too long at worst.
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
