#include "streams/cuda/host_waits.h"

namespace vdnn {

HostWaits::~HostWaits() {
  const CudaContext::Scope scope = context_.enter_anyway();
  for (const CudaStream stream : free_) {
    context_.forget(context_.api().stream_synchronize(stream));  // a failed wait may have left work there
    context_.forget(context_.api().stream_destroy(stream));
  }
}

HostWaits::Stream HostWaits::take() {
  const std::lock_guard lock(mutex_);
  CudaStream stream = nullptr;
  if (free_.empty()) {
    free_.reserve(made_ + 1);
    context_.check(context_.api().stream_create(stream), "cudaStreamCreateWithFlags");
    ++made_;
  } else {
    stream = free_.back();
    free_.pop_back();
  }
  return {stream, GiveBack{this}};
}

void HostWaits::give_back(CudaStream stream) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(stream);
}

void HostWaits::wait(CudaEvent event) {
  CudaApi& api = context_.api();
  if (context_.is_ready(api.event_query(event), "cudaEventQuery")) {
    return;
  }
  const Stream stream = take();
  const EventPool::Event end = events_.take();
  context_.check(api.stream_wait_event(stream.get(), event), "cudaStreamWaitEvent");
  context_.check(api.event_record(end.get(), stream.get()), "cudaEventRecord");
  context_.check(api.event_synchronize(end.get()), "cudaEventSynchronize");
}

}  // namespace vdnn
