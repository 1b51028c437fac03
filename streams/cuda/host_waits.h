#pragma once
// Host threads sleep until events have been reached.
//
// Every submission has an event for streams to wait for; host threads wait for few of them. The cheapest
// events for streams and queries are those on which host threads spin; events on which host threads sleep
// (blocking events) cost more (cudaEventCreateWithFlags). So the events of submissions are not blocking. To
// wait for such an event, a host thread makes a stream of its own wait for it, records a blocking event on
// that stream, and sleeps until the blocking event has been reached. If the blocking event were recorded on
// the submission's own stream, it would also come after all work that was submitted there after the
// submission.

#include <memory>
#include <mutex>
#include <vector>

#include "streams/cuda/event_pool.h"

namespace vdnn {

// Thread-safe: each waiting thread has a stream of its own. The caller holds a CudaContext::Scope.
class HostWaits {
 public:
  explicit HostWaits(CudaContext& context) : context_(context), events_(context, {.blocks = true}) {}
  ~HostWaits();
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  // Returns once the current record of `event` has been reached. Creates at most one stream per thread that
  // waits at the same time, and none if the event has been reached already.
  void wait(CudaEvent event);

 private:
  struct GiveBack {
    HostWaits* waits = nullptr;
    void operator()(CudaStream stream) const noexcept { waits->give_back(stream); }
  };
  using Stream = std::unique_ptr<void, GiveBack>;

  Stream take();
  void give_back(CudaStream stream) noexcept;

  CudaContext& context_;
  EventPool events_;
  std::mutex mutex_;  // guards the members below
  std::size_t made_ = 0;
  std::vector<CudaStream> free_;  // has capacity for all streams that were made
};

}  // namespace vdnn
