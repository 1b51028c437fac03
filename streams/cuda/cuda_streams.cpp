#include "streams/cuda/cuda_streams.h"

namespace vdnn {

std::uint64_t id_of(CudaContext& context, CudaStream stream) {
  std::uint64_t id = 0;
  const CudaStatus status = context.api().stream_id(id, stream);
  // CUDA does not define the result for the handle of a destroyed stream. Depending on the driver, it is
  // either of these errors. A context that has really been destroyed is reported by a later CUDA call.
  if (status == CudaStatus::kInvalidResourceHandle || status == CudaStatus::kContextIsDestroyed) {
    context.forget(status);
    throw InvalidArgument(context.owner() + ": there is no such stream");
  }
  context.check(status, "cudaStreamGetId");
  return id;
}

bool is_captured(CudaContext& context, CudaStream stream) {
  bool captured = false;
  const CudaStatus status = context.api().stream_is_capturing(captured, stream);
  if (status == CudaStatus::kStreamCaptureImplicit) {
    context.forget(status);
    return true;
  }
  context.check(status, "cudaStreamIsCapturing");
  return captured;
}

}  // namespace vdnn
