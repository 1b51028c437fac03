#pragma once
// Layer mathematics on CPUs through oneDNN. Activations are NHWC (NDHWC); filters are held in the layout that
// oneDNN's forward convolution prefers, and an algorithm that wants them otherwise converts them into its
// workspace, where the copy is counted. Algorithms are oneDNN's implementations in its own order; its
// reference kernels (a thousand times slower) are offered only where there is nothing else.
//
// bf16 is multiplied as such where the processor can (AVX512-BF16); elsewhere, and in fp16, operands are
// widened to fp32 in the workspace, and results rounded.
//
// Results are bit-identical for the same algorithms and the same number of threads.

#include <memory>

#include "vdnn/op_library.h"

namespace vdnn {

struct CpuOpsOptions {
  // Compute threads that the ops use, the stream's own included; part of what fixes a result. > 0.
  int threads = 1;
};

std::unique_ptr<OpLibrary> make_cpu_ops(const CpuOpsOptions& options);

}  // namespace vdnn
