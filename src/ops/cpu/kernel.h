#pragma once
// The code of one op on the CPU. A program holds one kernel per op. A kernel makes all decisions and
// allocations when it is built, so run() only reads and writes operands.

#include "src/ops/kernel_request.h"
#include "vdnn/op_library.h"

namespace vdnn::cpu {

class CpuKernel {
 public:
  CpuKernel() = default;
  CpuKernel(const CpuKernel&) = delete;
  CpuKernel& operator=(const CpuKernel&) = delete;
  virtual ~CpuKernel() = default;

  // Operands have the order of the recipe. Call run() from one thread at a time; it may be any thread.
  virtual void run(const OpOperands& operands, const StepScalars& scalars) = 0;
};

using ops::KernelRequest;

}  // namespace vdnn::cpu
