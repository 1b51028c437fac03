#include "src/stash/cuda_stash_backend.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "streams/cuda/cuda_context.h"
#include "streams/cuda/cuda_gpus.h"
#include "streams/cuda/cuda_pinned_blocks.h"
#include "streams/cuda/cuda_streams.h"
#include "streams/cuda/event_pool.h"
#include "streams/cuda/host_waits.h"
#include "streams/host_memory.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// A stream that the stash owns.
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

// Measures submissions to streams by pairs of events. Calls must be within a scope of the context.
class Stopwatch {
 public:
  // If not `timed`, nothing is measured, at no cost.
  Stopwatch(CudaContext& context, bool timed)
      : context_(context), events_(context, {.timed = true}), timed_(timed) {}

  // Calls `give()`, which submits work and may throw. If an event cannot be recorded, the submission is not
  // measured.
  template <class Give>
  void measure(CudaStream stream, std::uint64_t StashBackend::Times::*sum, const Give& give) {
    EventPool::Event begin = timed_ ? record(stream) : nullptr;
    give();
    if (begin) {
      keep({.begin = std::move(begin), .end = record(stream), .sum = sum});
    }
  }

  StashBackend::Times times() noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(spans_, [this](const Span& span) { return is_settled(span); });
    return times_;
  }

 private:
  struct Span {
    EventPool::Event begin;
    EventPool::Event end;
    std::uint64_t StashBackend::Times::*sum = nullptr;
  };

  EventPool::Event record(CudaStream stream) noexcept {
    try {
      EventPool::Event event = events_.take();
      const CudaStatus status = context_.api().event_record(event.get(), stream);
      if (status == CudaStatus::kSuccess) {
        return event;
      }
      context_.forget(status);
    } catch (...) {
      // The submission is not timed.
    }
    return nullptr;
  }

  // Each call checks only the two oldest spans. So no call takes long, and a GPU that lags is not polled
  // again and again.
  void keep(Span span) noexcept {
    constexpr std::size_t kRecent = 256;  // number of latest spans, which may be running and are not polled
    constexpr int kLooks = 2;
    const std::lock_guard lock(mutex_);
    try {
      if (span.end) {
        spans_.push_back(std::move(span));
      }
    } catch (...) {
      // The submission is not timed.
    }
    for (int i = 0; i < kLooks && spans_.size() > kRecent && is_settled(spans_.front()); ++i) {
      spans_.pop_front();
    }
  }

  // Adds the span's time if the span is done. Returns false if it still runs. Call it with the lock held.
  bool is_settled(const Span& span) noexcept {
    constexpr double kNanosecondsPerMillisecond = 1e6;
    float milliseconds = 0;
    const CudaStatus status =
        context_.api().event_elapsed_time(milliseconds, span.begin.get(), span.end.get());
    if (status == CudaStatus::kNotReady) {
      return false;
    }
    context_.forget(status);
    if (status == CudaStatus::kSuccess) {
      times_.*span.sum += static_cast<std::uint64_t>(milliseconds * kNanosecondsPerMillisecond);
    }
    return true;
  }

  CudaContext& context_;
  EventPool events_;
  const bool timed_;
  std::mutex mutex_;        // guards the members below
  std::deque<Span> spans_;  // the oldest first
  StashBackend::Times times_;
};

class CudaStashBackend final : public StashBackend {
 public:
  CudaStashBackend(int ordinal, bool timed, const std::shared_ptr<CudaApi>& api)
      : context_(context_of(ordinal, api)),
        events_(*context_, {}),
        host_waits_(*context_),
        blocks_(*context_, host_memory_bytes(), info_within(*context_).host_node),
        stopwatch_(*context_, timed),
        offload_(*context_),
        prefetch_(*context_) {}

  std::string name() const override { return context_->owner(); }
  StreamHandle offload_stream() const override { return offload_.get(); }
  StreamHandle prefetch_stream() const override { return prefetch_.get(); }

  void begin_calls() override {
    scope_.emplace(context_->enter());
    inside_ = std::this_thread::get_id();
  }
  void end_calls() noexcept override {
    inside_ = std::thread::id();
    scope_.reset();
  }

  std::uint64_t stream_id(StreamHandle stream) override {
    return within([&] { return id_of(*context_, stream); });
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
    const auto give = [&] { context_->check(api().stream_wait_event(stream, event), "cudaStreamWaitEvent"); };
    within([&] {
      if (stream == offload_.get() || stream == prefetch_.get()) {
        give();
      } else {
        stopwatch_.measure(stream, &Times::wait_nanoseconds, give);
      }
    });
  }
  void synchronize(EventHandle event) override {
    within([&] { host_waits_.wait(event); });
  }
  void release(EventHandle event) noexcept override { EventPool::GiveBack{&events_}(event); }
  void synchronize_copies() override {
    within([&] {
      for (const CudaStream stream : {offload_.get(), prefetch_.get()}) {
        context_->check(api().stream_synchronize(stream), "cudaStreamSynchronize");
      }
    });
  }

  AddressRange allocate_host(std::uint64_t bytes) override { return blocks_.take(bytes); }
  void free_host(AddressRange block) override { blocks_.give_back(block); }

  void copy_out(AddressRange block, AddressRange source, const StashIdentity&) override {
    copy(block.begin, source.begin, source.bytes, CopyDirection::kDeviceToHost, offload_.get());
  }
  void copy_in(AddressRange target, AddressRange block, const StashIdentity&) override {
    copy(target.begin, block.begin, target.bytes, CopyDirection::kHostToDevice, prefetch_.get());
  }

  Times times() noexcept override {
    const CudaContext::Scope scope = context_->enter_anyway();
    return stopwatch_.times();
  }

 private:
  CudaApi& api() const { return context_->api(); }

  template <class Call>
  std::invoke_result_t<const Call&> within(const Call& call) {
    if (inside_.load() == std::this_thread::get_id()) {
      return call();
    }
    const CudaContext::Scope scope = context_->enter();
    return call();
  }

  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes, CopyDirection direction,
            CudaStream stream) {
    const auto give = [&] {
      context_->check(api().memcpy_async(to, from, bytes, direction, stream), "cudaMemcpyAsync",
                      [bytes] { return format_size(bytes); });
    };
    within([&] { stopwatch_.measure(stream, &Times::copy_nanoseconds, give); });
  }

  const std::unique_ptr<CudaContext> context_;
  EventPool events_;
  HostWaits host_waits_;
  CudaPinnedBlocks blocks_;
  Stopwatch stopwatch_;
  OwnStream offload_;
  OwnStream prefetch_;
  std::optional<CudaContext::Scope> scope_;  // made by begin_calls(); only the thread in `inside_` uses it
  std::atomic<std::thread::id> inside_{};    // the thread between begin_calls() and end_calls()
};

}  // namespace

std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal, bool timed,
                                                      const std::shared_ptr<CudaApi>& api) {
  return std::make_unique<CudaStashBackend>(ordinal, timed, api);
}

std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal, bool timed) {
  return make_cuda_stash_backend(ordinal, timed, make_cuda_api());
}

}  // namespace vdnn
