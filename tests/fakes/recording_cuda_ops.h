#pragma once
// CUDA's ops with nothing computed: the library's own code decides what runs (src/ops/cuda/), and what it
// would give a GPU goes, by name and range, to the fake runtime, which needs no memory behind it
// (fake_cuda.h). An op is one kernel there, of the operands that the executor gives it. What the op in turn
// gives the vendors' libraries, and every address that it gives a kernel of our own, has to lie within those
// operands, on the same stream; else the op fails with a DeviceError that says what does not.

#include <memory>

#include "src/ops/cuda/engine_source.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

std::unique_ptr<OpLibrary> make_recording_cuda_ops(const std::shared_ptr<const cuda::EngineSource>& engines);

}  // namespace vdnn::testing
