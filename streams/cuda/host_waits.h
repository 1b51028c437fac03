#pragma once
// Host threads sleep until events have been reached.
//
// Every submission has an event for streams to wait for; host threads wait for few of them. Host threads spin
// on the events that are cheapest for streams and queries. Events on which host threads sleep cost streams
// and queries more (cudaEventCreateWithFlags). So the events of submissions do not block. A host thread lets
// a stream of its own wait for the event, records a blocking event there, and sleeps until that event is
// reached. On the submission's stream, the blocking event would come after all work submitted since. since.

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

  // Returns once the current record of `event` has been reached. Creates at most as many streams as threads
  // wait at once, and none if the event has been reached already.
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
  std::mutex mutex_;  // guards what follows
  std::size_t made_ = 0;
  std::vector<CudaStream> free_;  // has room for all that were made
};

}  // namespace vdnn
