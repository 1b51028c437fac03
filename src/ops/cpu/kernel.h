#pragma once
// How one op runs on the CPU. A program holds one kernel an op; everything that can be decided or allocated
// beforehand was, so that run() only reads and writes the operands that it is given.

#include "src/ops/kernel_request.h"
#include "vdnn/op_library.h"

namespace vdnn::cpu {

class CpuKernel {
 public:
  CpuKernel() = default;
  CpuKernel(const CpuKernel&) = delete;
  CpuKernel& operator=(const CpuKernel&) = delete;
  virtual ~CpuKernel() = default;

  // Operands in the order of the recipe. May be called from any thread, by one at a time.
  virtual void run(const OpOperands& operands, const StepScalars& scalars) = 0;
};

using ops::KernelRequest;

}  // namespace vdnn::cpu
