#include "streams/cuda/device_clock.h"

#include <utility>

namespace vdnn {

double DeviceClock::host_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - created_).count();
}

void DeviceClock::start() {
  CudaApi& api = context_.api();
  EventPool::Event base = stamps_.take();
  CudaStream idle = nullptr;
  context_.check(api.stream_create(idle), "cudaStreamCreateWithFlags");
  // The host's clock is read first, so that the device's times are never ahead of the host's.
  base_seconds_ = host_seconds();
  const CudaStatus recorded = api.event_record(base.get(), idle);
  const CudaStatus waited = api.stream_synchronize(idle);
  if (waited != CudaStatus::kSuccess) {
    // Waits once more: the event returns to the pool, and its record may still be in flight.
    context_.forget(api.stream_synchronize(idle));
  }
  const CudaStatus destroyed = api.stream_destroy(idle);
  context_.check(recorded, "cudaEventRecord");
  context_.check(waited, "cudaStreamSynchronize");
  context_.check(destroyed, "cudaStreamDestroy");
  base_ = std::move(base);
}

void DeviceClock::require_started() {
  const std::lock_guard lock(mutex_);
  if (!base_) {
    start();
  }
}

EventPool::Event DeviceClock::stamp(CudaStream stream) {
  require_started();
  EventPool::Event event = stamps_.take();
  context_.check(context_.api().event_record(event.get(), stream), "cudaEventRecord");
  return event;
}

double DeviceClock::seconds_locked(CudaEvent stamp) {
  float milliseconds = 0;
  context_.check(context_.api().event_elapsed_time(milliseconds, base_.get(), stamp), "cudaEventElapsedTime");
  return base_seconds_ + static_cast<double>(milliseconds) * 1e-3;
}

double DeviceClock::seconds(CudaEvent stamp) {
  const std::lock_guard lock(mutex_);
  return seconds_locked(stamp);
}

void DeviceClock::rebase(EventPool::Event stamp) {
  const std::lock_guard lock(mutex_);
  base_seconds_ = seconds_locked(stamp.get());
  base_ = std::move(stamp);
}

}  // namespace vdnn
