#pragma once
// CUDA's ops without computation. The code of src/ops/cuda/ decides what runs, and submits it, by name and
// range, to the fake runtime with logical memory (fake_cuda.h). There, an op is one kernel with the operands
// from the executor. The op passes ranges to a vendor's library, and addresses to our kernels. All must lie
// within those operands and be used on the same stream. Otherwise the op fails with a DeviceError that names
// the range.

#include <memory>

#include "src/ops/cuda/engine_source.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

std::unique_ptr<OpLibrary> make_recording_cuda_ops(const std::shared_ptr<const cuda::EngineSource>& engines);

}  // namespace vdnn::testing
