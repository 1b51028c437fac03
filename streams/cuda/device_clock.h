#pragma once
// Times of events on the device, in seconds of the host's clock.
//
// CUDA returns the time between two events in milliseconds as a float, which is accurate to a fraction of a
// microsecond only if the events are at most seconds apart. So times are relative to a base event, and a
// later stamp becomes the base once all earlier stamps have been read. The first base is recorded on an idle
// stream while the host reads its own clock. This happens only at the first request for a stamp, so a run
// without traces costs nothing. Even after rounding, times have the order of the device's stamps.

#include <chrono>
#include <mutex>

#include "streams/cuda/event_pool.h"

namespace vdnn {

// Thread-safe. The caller holds a CudaContext::Scope.
class DeviceClock {
 public:
  explicit DeviceClock(CudaContext& context) : context_(context), stamps_(context, {.timed = true}) {}

  double host_seconds() const;

  // Starts the clock; the first call waits for the device. Call it before a capture, since stamp() must not
  // wait during a capture.
  void require_started();
  // Records the time at which `stream` reaches this point.
  EventPool::Event stamp(CudaStream stream);
  // The time of a stamp, which must have been reached.
  double seconds(CudaEvent stamp);
  // Makes `stamp`, which must have been reached, the base. Afterwards, do not pass seconds() a stamp that
  // was taken before this call.
  void rebase(EventPool::Event stamp);

 private:
  void start();
  double seconds_locked(CudaEvent stamp);

  CudaContext& context_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  EventPool stamps_;
  std::mutex mutex_;  // guards the members below
  EventPool::Event base_;
  double base_seconds_ = 0;
};

}  // namespace vdnn
