#pragma once
// Layer mathematics on CPUs through oneDNN. Feature maps are NHWC (NDHWC). Filters have the layout that
// oneDNN's forward convolution prefers. An algorithm that needs another layout copies them, converted, into
// its workspace; the workspace's size includes this copy. Algorithms are oneDNN's implementations in its own
// order. oneDNN's reference kernels (a thousand times slower) are offered only if there is nothing else.
//
// Processors with AVX512-BF16 multiply bf16 directly. On others, and for fp16, operands are widened to fp32
// in the workspace and results are rounded.
//
// Results are bit-identical for the same algorithms and the same number of threads.

#include <memory>

#include "vdnn/op_library.h"

namespace vdnn {

struct CpuOpsOptions {
  // Threads that compute an op, including the stream's own; above 0. Results depend on it.
  int threads = 1;
};

// Throws InvalidArgument for options out of range.
std::unique_ptr<OpLibrary> make_cpu_ops(const CpuOpsOptions& options);

}  // namespace vdnn
