#pragma once
// One GPU as its driver calls it: from any thread, with errors as exceptions, and lost after an error that
// corrupts it.

#include <concepts>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "streams/cuda/cuda_api.h"
#include "vdnn/error.h"

namespace vdnn {

// Thread-safe.
class CudaContext {
 public:
  // Until it dies the calling thread's GPU is the context's; then the one before, if the process uses that:
  // since CUDA 12, to set a GPU is to begin to use it.
  class Scope {
   public:
    Scope(Scope&& other) noexcept;
    Scope& operator=(Scope&&) = delete;
    ~Scope();

   private:
    friend class CudaContext;
    explicit Scope(CudaApi& api) : api_(&api) {}

    CudaApi* api_;
    int previous_ = 0;
    bool changed_ = false;
  };

  // `owner` names the device in errors.
  CudaContext(std::string owner, std::shared_ptr<CudaApi> api, int ordinal);

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
  // Whatever `status` says, nobody's next check of a launch is to find it. An error that the program has left
  // stays for the program's own check, unless it is the same one.
  void forget(CudaStatus status) noexcept;

 private:
  [[noreturn]] void fail(CudaStatus status, const char* call, const std::string& numbers);

  const std::string owner_;
  const std::shared_ptr<CudaApi> api_;
  const int ordinal_;
  std::mutex mutex_;  // guards what follows
  std::exception_ptr lost_;
};

}  // namespace vdnn
