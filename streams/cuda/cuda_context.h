#pragma once
// Calls to one GPU from any thread, with errors as exceptions. After an error that corrupts its context, the
// device is lost.

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
  // While a Scope lives, the GPU's primary context is current to the calling thread, and the thread has the
  // CudaContext's capture mode. The destructor restores the thread's earlier context, which need not be a
  // primary one. If the thread had none, it restores the thread's earlier GPU, but only if the process uses
  // that GPU: since CUDA 12, setting a GPU begins to use it.
  class Scope {
   public:
    Scope(Scope&& other) noexcept;
    Scope& operator=(Scope&&) = delete;
    ~Scope();

   private:
    friend class CudaContext;
    explicit Scope(CudaApi& api) : api_(&api) {}
    // Called after the thread has set GPU `ordinal`: notes whether the context or the GPU changed.
    CudaStatus see_change(int ordinal);

    CudaApi* api_;
    CudaContextHandle context_ = nullptr;  // the thread's, before the scope
    int gpu_ = 0;                          // likewise
    bool is_changed_ = false;              // context or GPU must be restored
    std::optional<CaptureMode> mode_;      // to be restored; empty: not changed
  };

  // `owner` names the device in errors. Calls run in capture mode `captures`. By default, CUDA refuses calls
  // that a capture of the calling thread forbids, and captures of other threads are not affected.
  CudaContext(std::string owner, std::shared_ptr<CudaApi> api, int ordinal,
              CaptureMode captures = CaptureMode::kThreadLocal);

  CudaApi& api() const { return *api_; }
  int ordinal() const { return ordinal_; }
  const std::string& owner() const { return owner_; }

  // Every entry point calls it. If the device is lost, throws the error that corrupted it.
  Scope enter();
  // Likewise, for calls to another GPU, `ordinal`.
  Scope enter(int ordinal);
  // For releases that must happen in any case: does not throw.
  Scope enter_anyway() noexcept;

  // Throws unless `status`, the result of `call`, is success.
  void check(CudaStatus status, const char* call) {
    check(status, call, [] { return std::string(); });
  }
  // Likewise. On failure, the message contains the text that numbers() returns.
  template <std::invocable Numbers>
  void check(CudaStatus status, const char* call, const Numbers& numbers) {
    if (status != CudaStatus::kSuccess) {
      fail(status, call, numbers());
    }
  }
  // Likewise, but a lack of memory throws OutOfMemory with the numbers of `shortage()`.
  template <class Shortage>
  void check_memory(CudaStatus status, const char* call, const Shortage& shortage) {
    if (status == CudaStatus::kMemoryAllocation) {
      forget(status);
      throw OutOfMemory(owner_ + ": " + call + ": " + api_->error_name(status), shortage());
    }
    check(status, call);
  }
  // Likewise, but returns false for kNotReady.
  bool is_ready(CudaStatus status, const char* call);
  // Clears the thread's last error if it is `status`, so that no later check of a launch reports it. An
  // earlier error of the program stays.
  void forget(CudaStatus status) noexcept;

 private:
  [[noreturn]] void fail(CudaStatus status, const char* call, const std::string& numbers);

  const std::string owner_;
  const std::shared_ptr<CudaApi> api_;
  const int ordinal_;
  const CaptureMode captures_;
  // The GPU's primary context, once a thread has had it current. Such a thread need not set the GPU.
  std::atomic<CudaContextHandle> primary_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::exception_ptr lost_;
};

}  // namespace vdnn
