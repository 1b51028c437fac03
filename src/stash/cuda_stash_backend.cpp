#include "src/stash/cuda_stash_backend.h"

#include <string>
#include <utility>

#include "streams/cuda/cuda_context.h"
#include "streams/cuda/cuda_gpus.h"
#include "streams/cuda/cuda_pinned_blocks.h"
#include "streams/cuda/cuda_pool_backend.h"
#include "streams/host_memory.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// A stream of the stash's own.
class OwnStream {
 public:
  explicit OwnStream(CudaContext& context) : context_(context) {
    const CudaContext::Scope scope = context_.enter();
    context_.check(context_.api().stream_create(stream_), "cudaStreamCreateWithFlags");
  }
  ~OwnStream() {
    const CudaContext::Scope scope = context_.enter_anyway();
    context_.forget(context_.api().stream_synchronize(stream_));
    context_.forget(context_.api().stream_destroy(stream_));
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  CudaStream get() const { return stream_; }

 private:
  CudaContext& context_;
  CudaStream stream_ = nullptr;
};

std::unique_ptr<CudaContext> context_of(int ordinal, std::shared_ptr<CudaApi> api) {
  auto context = std::make_unique<CudaContext>("cuda:" + std::to_string(ordinal), std::move(api), ordinal,
                                               CaptureMode::kRelaxed);
  require_gpu(*context);
  return context;
}

CudaDeviceInfo info_within(CudaContext& context) {
  const CudaContext::Scope scope = context.enter();
  return info_of(context, context.ordinal());
}

class CudaStashBackend final : public StashBackend {
 public:
  CudaStashBackend(int ordinal, const std::shared_ptr<CudaApi>& api)
      : context_(context_of(ordinal, api)),
        events_(make_cuda_pool_backend(ordinal, api)),
        blocks_(*context_, host_memory_bytes(), info_within(*context_).host_node),
        offload_(*context_),
        prefetch_(*context_) {}

  std::string name() const override { return context_->owner(); }
  StreamHandle offload_stream() const override { return offload_.get(); }
  StreamHandle prefetch_stream() const override { return prefetch_.get(); }

  bool is_capturing(StreamHandle stream) override { return events_->is_capturing(stream); }
  EventHandle record(StreamHandle stream) override { return events_->record(stream); }
  void wait(StreamHandle stream, EventHandle event) override { events_->wait(stream, event); }
  void synchronize(EventHandle event) override { events_->synchronize(event); }
  void release(EventHandle event) noexcept override { events_->release(event); }
  void synchronize_copies() override {
    const CudaContext::Scope scope = context_->enter();
    for (const CudaStream stream : {offload_.get(), prefetch_.get()}) {
      context_->check(context_->api().stream_synchronize(stream), "cudaStreamSynchronize");
    }
  }

  AddressRange allocate_host(std::uint64_t bytes) override { return blocks_.take(bytes); }
  void free_host(AddressRange block) override { blocks_.give_back(block); }

  void copy_out(AddressRange block, AddressRange source, const StashIdentity&) override {
    copy(block.begin, source.begin, source.bytes, CopyDirection::kDeviceToHost, offload_.get());
  }
  void copy_in(AddressRange target, AddressRange block, const StashIdentity&) override {
    copy(target.begin, block.begin, target.bytes, CopyDirection::kHostToDevice, prefetch_.get());
  }

 private:
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes, CopyDirection direction,
            CudaStream stream) {
    const CudaContext::Scope scope = context_->enter();
    context_->check(context_->api().memcpy_async(to, from, bytes, direction, stream), "cudaMemcpyAsync",
                    [bytes] { return format_size(bytes); });
  }

  const std::unique_ptr<CudaContext> context_;
  const std::unique_ptr<PoolBackend> events_;
  CudaPinnedBlocks blocks_;
  OwnStream offload_;
  OwnStream prefetch_;
};

}  // namespace

std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal, std::shared_ptr<CudaApi> api) {
  return std::make_unique<CudaStashBackend>(ordinal, api);
}

std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal) {
  return make_cuda_stash_backend(ordinal, make_cuda_api());
}

}  // namespace vdnn
