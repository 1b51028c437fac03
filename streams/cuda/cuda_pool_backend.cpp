#include "streams/cuda/cuda_pool_backend.h"

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "streams/cuda/cuda_context.h"
#include "streams/cuda/cuda_gpus.h"
#include "streams/cuda/cuda_granules.h"
#include "streams/cuda/cuda_streams.h"
#include "streams/cuda/event_pool.h"
#include "streams/cuda/host_waits.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// The granule of GPUs without virtual memory management: the usual granule of other GPUs.
constexpr std::uint64_t kCountedGranule = std::uint64_t{2} << 20;

// The handles of the default streams: 0 and cudaStreamLegacy, cudaStreamPerThread.
constexpr std::uintptr_t kPerThread = 2;

bool is_default(StreamHandle stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= kPerThread;
}

PoolBackendProperties properties_of(CudaContext& context) {
  require_gpu(context);
  const CudaContext::Scope scope = context.enter();
  const CudaDeviceInfo info = info_of(context, context.ordinal());
  if (!info.virtual_memory) {
    // No single allocation can be as large as the free memory.
    const std::uint64_t free = memory_of(context).free;
    return {.name = context.owner(),
            .memory_bytes = (free - free / 16) / kCountedGranule * kCountedGranule,
            .granule_bytes = kCountedGranule,
            .alignment_bytes = kCudaBlockAlignment,
            .maps = false};
  }
  return {.name = context.owner(),
          .memory_bytes = memory_of(context).free,
          .granule_bytes = granule_of(context, memory_kind_of(context, info)),
          .alignment_bytes = kCudaBlockAlignment};
}

class CudaPoolBackend final : public PoolBackend {
 public:
  CudaPoolBackend(std::unique_ptr<CudaContext> context, const CudaBackendOptions& options)
      : PoolBackend(properties_of(*context)),
        context_(std::move(context)),
        options_(options),
        granules_(*context_, properties().granule_bytes, info_of(*context_, context_->ordinal()),
                  options.peer_access && properties().maps ? peers_of(*context_) : std::vector<int>()),
        events_(*context_, {}),
        host_waits_(*context_) {}

  AddressRange reserve(std::uint64_t bytes) override {
    return within([&] { return granules_.reserve(bytes); });
  }
  void unreserve(AddressRange reservation) override {
    within([&] { granules_.unreserve(reservation); });
  }
  GranuleHandle create_granule() override {
    return within([&] { return granules_.create(); });
  }
  void destroy_granule(GranuleHandle granule) override {
    within([&] { granules_.destroy(granule); });
  }
  void map(AddressRange range, std::span<const GranuleHandle> granules) override {
    within([&] { granules_.map(range, granules); });
  }
  void unmap(AddressRange range) override {
    within([&] { granules_.unmap(range); });
  }
  void leave(AddressRange reservation) noexcept override { granules_.leave(reservation); }

  std::uint64_t stream_id(StreamHandle stream) override {
    // A stream belongs to one GPU, whatever the thread's GPU is; a default stream belongs to the thread's
    // GPU.
    return is_default(stream) || !has_context() ? within([&] { return id_of(*context_, stream); })
                                                : id_of(*context_, stream);
  }
  bool is_of_thread(StreamHandle stream) const override {
    return reinterpret_cast<std::uintptr_t>(stream) == kPerThread;
  }
  bool is_capturing(StreamHandle stream) override {
    return within([&] { return is_captured(*context_, stream); });
  }

  EventHandle record(StreamHandle stream) override {
    return within([&] {
      EventPool::Event event = events_.take();
      context_->check(api().event_record(event.get(), stream), "cudaEventRecord");
      return event.release();
    });
  }
  void wait(StreamHandle stream, EventHandle event) override {
    within([&] { context_->check(api().stream_wait_event(stream, event), "cudaStreamWaitEvent"); });
  }
  bool reached(EventHandle event) override {
    return within([&] { return context_->is_ready(api().event_query(event), "cudaEventQuery"); });
  }
  void synchronize(EventHandle event) override {
    within([&] { host_waits_.wait(event); });
  }
  void synchronize_all() override {
    within([&] {
      if (is_captured(*context_, nullptr) || (options_.is_capturing_any && options_.is_capturing_any())) {
        refuse_to_wait_for_all();
      }
      const std::uint64_t last_left = granules_.last_left();
      const CudaStatus status = api().device_synchronize();
      if (is_of_capture(status)) {  // a capture that the program did not report
        context_->forget(status);
        refuse_to_wait_for_all();
      }
      context_->check(status, "cudaDeviceSynchronize");
      if (last_left != 0) {
        // Work that this wait does not cover may use reservations that were left after the wait began.
        granules_.give_back_left(last_left);
      }
    });
  }
  void release(EventHandle event) noexcept override { EventPool::GiveBack{&events_}(event); }

 private:
  CudaApi& api() const { return context_->api(); }

  [[noreturn]] void refuse_to_wait_for_all() const {
    throw CaptureConflict(properties().name +
                          ": cannot wait for all streams while a stream is being captured");
  }
  // Whether CUDA returns `status` for a call that a capture forbids.
  static bool is_of_capture(CudaStatus status) {
    return status == CudaStatus::kStreamCaptureUnsupported ||
           status == CudaStatus::kStreamCaptureInvalidated || status == CudaStatus::kStreamCaptureImplicit;
  }

  // Whether the calling thread has a context. Without one, runtime calls begin to use the thread's GPU,
  // which may be any GPU.
  bool has_context() {
    CudaContextHandle context = nullptr;
    context_->check(api().current_context(context), "cuCtxGetCurrent");
    return context != nullptr;
  }

  template <class Call>
  std::invoke_result_t<const Call&> within(const Call& call) {
    const CudaContext::Scope scope = context_->enter();
    return call();
  }

  std::unique_ptr<CudaContext> context_;
  const CudaBackendOptions options_;
  CudaGranules granules_;
  EventPool events_;
  HostWaits host_waits_;
};

}  // namespace

std::unique_ptr<PoolBackend> make_cuda_pool_backend(int ordinal, std::shared_ptr<CudaApi> api,
                                                    const CudaBackendOptions& options) {
  return std::make_unique<CudaPoolBackend>(
      // Relaxed: the pool's own calls neither join a capture of the calling thread nor end it.
      std::make_unique<CudaContext>("cuda:" + std::to_string(ordinal), std::move(api), ordinal,
                                    CaptureMode::kRelaxed),
      options);
}

std::unique_ptr<PoolBackend> make_cuda_pool_backend(int ordinal, const CudaBackendOptions& options) {
  return make_cuda_pool_backend(ordinal, make_cuda_api(), options);
}

}  // namespace vdnn
