#pragma once
// The library on whatever stands behind the kernels.

#include <memory>

#include "src/ops/cuda/kernel_table.h"
#include "vdnn/op_library.h"

namespace vdnn::cuda {

std::unique_ptr<OpLibrary> make_cuda_ops(std::shared_ptr<const KernelTable> kernels);

}  // namespace vdnn::cuda
