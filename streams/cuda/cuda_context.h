#pragma once
// One GPU as its driver calls it: from any thread, with errors as exceptions, and lost after an error that
// corrupts it.

#include <atomic>
#include <concepts>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "streams/cuda/cuda_api.h"
#include "vdnn/error.h"

namespace vdnn {

// Thread-safe.
class CudaContext {
 public:
  // Until it dies the calling thread has the GPU's primary context and obeys captures as the context says.
  // Then it has what it had before: its own context, which need not be a primary one, or, where it had none,
  // the GPU before, if the process uses that. Since CUDA 12, to set a GPU is to begin to use it.
  class Scope {
   public:
    Scope(Scope&& other) noexcept;
    Scope& operator=(Scope&&) = delete;
    ~Scope();

   private:
    friend class CudaContext;
    explicit Scope(CudaApi& api) : api_(&api) {}
    // The thread has set this GPU.
    CudaStatus see_change(int ordinal);

    CudaApi* api_;
    CudaContextHandle context_ = nullptr;  // before
    int gpu_ = 0;                          // before
    bool is_changed_ = false;              // one of these
    std::optional<CaptureMode> mode_;      // before; empty: not changed
  };

  // `owner` names the device in errors. Calls are made in the mode `captures`: by default those are refused
  // that a capture of the calling thread forbids, and captures of other threads go on beside them.
  CudaContext(std::string owner, std::shared_ptr<CudaApi> api, int ordinal,
              CaptureMode captures = CaptureMode::kThreadLocal);

  CudaApi& api() const { return *api_; }
  int ordinal() const { return ordinal_; }
  const std::string& owner() const { return owner_; }

  // For every entry point. Throws the first cause where the device is lost.
  Scope enter();
  // Likewise, where what is to be called is another GPU's, `ordinal`.
  Scope enter(int ordinal);
  // For what has to be given back whatever happened: does not throw.
  Scope enter_anyway() noexcept;

  // Throws unless `status` is success: what `call` returned.
  void check(CudaStatus status, const char* call) {
    check(status, call, [] { return std::string(); });
  }
  // Likewise, asked for `numbers()`, a text that nobody wants of a call that succeeded.
  template <std::invocable Numbers>
  void check(CudaStatus status, const char* call, const Numbers& numbers) {
    if (status != CudaStatus::kSuccess) {
      fail(status, call, numbers());
    }
  }
  // Likewise, where want of memory is OutOfMemory with the numbers that `shortage()` makes.
  template <class Shortage>
  void check_memory(CudaStatus status, const char* call, const Shortage& shortage) {
    if (status == CudaStatus::kMemoryAllocation) {
      forget(status);
      throw OutOfMemory(owner_ + ": " + call + ": " + api_->error_name(status), shortage());
    }
    check(status, call);
  }
  // Likewise of what is not ready: false.
  bool is_ready(CudaStatus status, const char* call);
  // Clears the thread's last error if it is `status`, so that no later check of a launch reports it. Another
  // error, which the program has left, stays.
  void forget(CudaStatus status) noexcept;

 private:
  [[noreturn]] void fail(CudaStatus status, const char* call, const std::string& numbers);

  const std::string owner_;
  const std::shared_ptr<CudaApi> api_;
  const int ordinal_;
  const CaptureMode captures_;
  // The GPU's, once a thread was met that had it: where it is current there is no GPU to be set.
  std::atomic<CudaContextHandle> primary_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::exception_ptr lost_;
};

}  // namespace vdnn
