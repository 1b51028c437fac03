#pragma once
// Calls to one GPU from any thread, with errors as exceptions. After an error that corrupts the GPU's
// context, the device is lost.

#include <atomic>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "streams/cuda/cuda_api.h"
#include "vdnn/error.h"

namespace vdnn {

// The alignment of blocks in bytes: that of cudaMalloc(), on which programs rely. PyTorch gives cuDNN blocks
// with the same alignment.
inline constexpr std::uint64_t kCudaBlockAlignment = 512;

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
    // Call it after the thread has set GPU `ordinal`: notes whether the context or the GPU changed.
    CudaStatus see_change(int ordinal);

    CudaApi* api_;
    CudaContextHandle context_ = nullptr;  // the thread's context before the scope
    int gpu_ = 0;                          // the thread's GPU before the scope
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

  // Call it at every entry point. If the device is lost, throws the error that corrupted its context.
  Scope enter();
  // Likewise, for calls to another GPU, `ordinal`.
  Scope enter(int ordinal);
  // Likewise, but does not throw: for releases that must happen in any case.
  Scope enter_anyway() noexcept;

  // Throws if `status`, the result of `call`, is an error.
  void check(CudaStatus status, const char* call) {
    check(status, call, [] { return std::string(); });
  }
  // Likewise, with the text that numbers() returns in the message.
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
  // Clears the thread's last error if it is `status`, so that no later check of a launch reports it. Does
  // not clear an earlier error of the program.
  void forget(CudaStatus status) noexcept;

 private:
  [[noreturn]] void fail(CudaStatus status, const char* call, const std::string& numbers);

  const std::string owner_;
  const std::shared_ptr<CudaApi> api_;
  const int ordinal_;
  const CaptureMode captures_;
  // The GPU's primary context, once it has been current to a thread. A thread to which it is current need
  // not set the GPU.
  std::atomic<CudaContextHandle> primary_ = nullptr;
  std::mutex mutex_;  // guards the members below
  std::exception_ptr lost_;
};

}  // namespace vdnn
