#include "streams/cuda/cuda_context.h"

#include <utility>

namespace vdnn {

namespace {

// After these errors, nothing in the process's context works any more (CUDA Runtime API, cudaError_t: "the
// only way to continue is to terminate and relaunch the process").
bool corrupts(CudaStatus status) {
  switch (status) {
    case CudaStatus::kEccUncorrectable:
    case CudaStatus::kNvlinkUncorrectable:
    case CudaStatus::kContained:
    case CudaStatus::kIllegalAddress:
    case CudaStatus::kLaunchTimeout:
    case CudaStatus::kContextIsDestroyed:
    case CudaStatus::kAssert:
    case CudaStatus::kHardwareStackError:
    case CudaStatus::kIllegalInstruction:
    case CudaStatus::kMisalignedAddress:
    case CudaStatus::kInvalidAddressSpace:
    case CudaStatus::kInvalidPc:
    case CudaStatus::kLaunchFailure:
    case CudaStatus::kTensorMemoryLeak:
    case CudaStatus::kMpsClientTerminated:
    case CudaStatus::kExternalDevice:
    case CudaStatus::kUnknown:
      return true;
    default:
      return false;
  }
}

// Clears the last error only if it is `failed`: a failed driver call sets none, and any other error is the
// program's own.
void forget_last_error(CudaApi& api, CudaStatus failed) {
  if (failed != CudaStatus::kSuccess && api.peek_at_last_error() == failed) {
    api.get_last_error();
  }
}

}  // namespace

CudaContext::Scope::Scope(Scope&& other) noexcept
    : api_(other.api_),
      context_(other.context_),
      gpu_(other.gpu_),
      is_changed_(std::exchange(other.is_changed_, false)),
      mode_(std::exchange(other.mode_, std::nullopt)) {}

CudaContext::Scope::~Scope() {
  if (mode_) {
    forget_last_error(*api_, api_->thread_exchange_capture_mode(*mode_));
  }
  if (!is_changed_) {
    return;
  }
  if (context_ != nullptr) {
    forget_last_error(*api_, api_->set_current_context(context_));
    return;
  }
  // If the process does not use the GPU yet, set_device() would create a context there.
  bool active = false;
  CudaStatus status = api_->context_is_active(active, gpu_);
  if (status == CudaStatus::kSuccess && active) {
    status = api_->set_device(gpu_);
  }
  forget_last_error(*api_, status);
}

CudaStatus CudaContext::Scope::see_change(int ordinal) {
  if (context_ == nullptr) {
    is_changed_ = gpu_ != ordinal;
    return CudaStatus::kSuccess;
  }
  CudaContextHandle now = nullptr;
  const CudaStatus status = api_->current_context(now);
  is_changed_ = status != CudaStatus::kSuccess || now != context_;
  return status;
}

CudaContext::CudaContext(std::string owner, std::shared_ptr<CudaApi> api, int ordinal, CaptureMode captures)
    : owner_(std::move(owner)), api_(std::move(api)), ordinal_(ordinal), captures_(captures) {}

CudaContext::Scope CudaContext::enter() {
  return enter(ordinal_);
}

CudaContext::Scope CudaContext::enter(int ordinal) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) {
      std::rethrow_exception(lost_);
    }
  }
  Scope scope(*api_);
  check(api_->current_context(scope.context_), "cuCtxGetCurrent");
  if (ordinal != ordinal_ || scope.context_ == nullptr || scope.context_ != primary_) {
    check(api_->get_device(scope.gpu_), "cudaGetDevice");
    // Needed even if the thread's GPU is `ordinal` already: on a thread that has not used that GPU yet, the
    // call makes the GPU's context current. Other runtime calls come later: before this one, they would begin
    // to use the GPU that the thread has been set to.
    check(api_->set_device(ordinal), "cudaSetDevice", [&] { return std::to_string(ordinal); });
    check(scope.see_change(ordinal), "cuCtxGetCurrent");
    if (ordinal == ordinal_ && !scope.is_changed_) {
      primary_ = scope.context_;
    }
  }
  CaptureMode mode = captures_;
  check(api_->thread_exchange_capture_mode(mode), "cudaThreadExchangeStreamCaptureMode");
  scope.mode_ = mode;
  return scope;
}

CudaContext::Scope CudaContext::enter_anyway() noexcept {
  Scope scope(*api_);
  const CudaStatus had_context = api_->current_context(scope.context_);
  forget(had_context);
  const CudaStatus had_gpu = api_->get_device(scope.gpu_);
  forget(had_gpu);
  forget(api_->set_device(ordinal_));
  if (had_context == CudaStatus::kSuccess && had_gpu == CudaStatus::kSuccess) {
    forget(scope.see_change(ordinal_));
  }
  CaptureMode mode = captures_;
  const CudaStatus exchanged = api_->thread_exchange_capture_mode(mode);
  forget(exchanged);
  if (exchanged == CudaStatus::kSuccess) {
    scope.mode_ = mode;
  }
  return scope;
}

bool CudaContext::is_ready(CudaStatus status, const char* call) {
  if (status == CudaStatus::kNotReady) {
    return false;
  }
  check(status, call);
  return true;
}

void CudaContext::forget(CudaStatus status) noexcept {
  forget_last_error(*api_, status);
}

void CudaContext::fail(CudaStatus status, const char* call, const std::string& numbers) {
  forget(status);
  const bool lost = corrupts(status);
  const DeviceError error(owner_ + ": " + call + "(" + numbers + "): " + api_->error_name(status) +
                              (lost ? "; the device is lost" : ""),
                          lost);
  if (lost) {
    const std::lock_guard lock(mutex_);
    if (!lost_) {
      lost_ = std::make_exception_ptr(error);
    }
    std::rethrow_exception(lost_);
  }
  throw error;
}

}  // namespace vdnn
