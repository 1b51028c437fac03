#pragma once
// Times of events on the device, in seconds of a clock of the host.
//
// CUDA returns the time between two events in milliseconds as a float, which is accurate to a fraction of a
// microsecond only if the events are at most seconds apart. So times are relative to a base event, and the
// base moves on whenever no earlier stamp is still to be read. The first request records the first base on an
// idle stream while the host reads its own clock: a run without traces costs nothing. Times have the order of
// the device's stamps, rounding included.

#include <chrono>
#include <mutex>

#include "streams/cuda/event_pool.h"

namespace vdnn {

// Thread-safe. The caller holds a CudaContext::Scope.
class DeviceClock {
 public:
  explicit DeviceClock(CudaContext& context) : context_(context), stamps_(context, {.timed = true}) {}

  double host_seconds() const;

  // Waits for the device the first time. Must be called before a capture, in which stamp() must not wait.
  void require_started();
  // Records the moment at which `stream` reaches this point.
  EventPool::Event stamp(CudaStream stream);
  // The time of a stamp that is reached.
  double seconds(CudaEvent stamp);
  // Makes `stamp`, which is reached, the base. Later calls of seconds() are only for stamps taken after this
  // call.
  void rebase(EventPool::Event stamp);

 private:
  void start();
  double seconds_locked(CudaEvent stamp);

  CudaContext& context_;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  EventPool stamps_;
  std::mutex mutex_;  // guards what follows
  EventPool::Event base_;
  double base_seconds_ = 0;
};

}  // namespace vdnn
