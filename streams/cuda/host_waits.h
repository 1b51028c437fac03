#pragma once
// Hosts that sleep until events have been reached.
//
// Every submission has an event that streams wait for, and hosts wait for few of them. Events that are the
// cheapest for streams and queries make a host spin that waits for them; events at which hosts sleep cost
// streams and queries more (cudaEventCreateWithFlags). So the events of submissions do not block. A host that
// waits has a stream of its own wait for the event, records an event that blocks there, and sleeps until that
// one is reached. Recorded on the stream of the submission it would come after all that the stream was given
// since.

#include <memory>
#include <mutex>
#include <vector>

#include "streams/cuda/event_pool.h"

namespace vdnn {

// Thread-safe: threads that wait at the same time have streams of their own. Calls are made within a scope of
// the context.
class HostWaits {
 public:
  explicit HostWaits(CudaContext& context) : context_(context), events_(context, {.blocks = true}) {}
  ~HostWaits();
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  // Returns once `event`, as it is recorded now, has been reached. At most as many streams are made as
  // threads wait at once, and none where it has been reached already.
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
