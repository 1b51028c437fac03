#pragma once
// Times of events on the device, in seconds of a clock of the host.
//
// Timed events give differences in milliseconds as a float, which are accurate to a fraction of a microsecond
// only while both events lie within seconds of each other. So times are relative to a base, and the base
// moves on whenever no earlier stamp is still to be read. The first base is recorded on an idle stream while
// the host reads its own clock, at the first request: a run without traces costs nothing. The order of times
// is that of the device's stamps, rounding included.

#include <chrono>
#include <mutex>

#include "streams/cuda/event_pool.h"

namespace vdnn {

// Thread-safe. Calls are made within a scope of the context.
class DeviceClock {
 public:
  explicit DeviceClock(CudaContext& context) : context_(context), stamps_(context, {.timed = true}) {}

  double host_seconds() const;

  // Waits for the device, the first time. To be called before a capture, in which stamp() may not wait.
  void require_started();
  // The moment at which `stream` gets here.
  EventPool::Event stamp(CudaStream stream);
  // Of a stamp that is past.
  double seconds(CudaEvent stamp);
  // Every stamp whose seconds() will be asked for is taken after this call; `stamp` is past.
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
