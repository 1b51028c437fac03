#include "streams/cuda/cuda_context.h"

#include <utility>

namespace vdnn {

namespace {

// After these nothing in the process's context works any more (CUDA Runtime API, cudaError_t: "the only way
// to continue is to terminate and relaunch the process").
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

// A call of the driver that fails leaves nothing to be forgotten; then the last error is the program's own.
void forget_last_error(CudaApi& api, CudaStatus failed) {
  if (failed != CudaStatus::kSuccess && api.peek_at_last_error() == failed) {
    api.get_last_error();
  }
}

}  // namespace

CudaContext::Scope::Scope(Scope&& other) noexcept
    : api_(other.api_), previous_(other.previous_), changed_(std::exchange(other.changed_, false)) {}

CudaContext::Scope::~Scope() {
  if (!changed_) {
    return;
  }
  // A GPU that nobody has begun to use has no context, and to set it would make one there.
  bool active = false;
  CudaStatus status = api_->context_is_active(active, previous_);
  if (status == CudaStatus::kSuccess && active) {
    status = api_->set_device(previous_);
  }
  forget_last_error(*api_, status);
}

CudaContext::CudaContext(std::string owner, std::shared_ptr<CudaApi> api, int ordinal)
    : owner_(std::move(owner)), api_(std::move(api)), ordinal_(ordinal) {}

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
  check(api_->get_device(scope.previous_), "cudaGetDevice");
  // Also where it is set already: on a thread that has not used it yet, this makes its context current.
  check(api_->set_device(ordinal), "cudaSetDevice", [&] { return std::to_string(ordinal); });
  scope.changed_ = scope.previous_ != ordinal;
  return scope;
}

CudaContext::Scope CudaContext::enter_anyway() noexcept {
  Scope scope(*api_);
  const CudaStatus known = api_->get_device(scope.previous_);
  forget(known);
  forget(api_->set_device(ordinal_));
  scope.changed_ = known == CudaStatus::kSuccess && scope.previous_ != ordinal_;
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
