#pragma once
// The library of layers on a GPU, over replaceable implementations of kernel launches, vendors' ops and
// engines.

#include <memory>
#include <string>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/kernel_table.h"
#include "src/ops/cuda/vendor_library.h"
#include "vdnn/op_library.h"

namespace vdnn::cuda {

// No pointer may be null.
struct Backends {
  std::shared_ptr<const KernelTable> kernels;
  std::shared_ptr<VendorLibrary> vendor;
  std::shared_ptr<const EngineSource> engines;
  ProductPrecisions precisions;
  // Versions of the engines' libraries, as part of the key of recorded trials.
  std::string cudnn;
  std::string cudnn_frontend;
};

// Returns our own kernels, cuDNN and cuBLASLt for the calling thread's GPU. Throws what vdnn::make_cuda_ops()
// throws.
Backends make_cuda_backends();

std::unique_ptr<OpLibrary> make_cuda_ops(Backends backends);

}  // namespace vdnn::cuda
