#pragma once
// How one op runs on the CPU. A program holds one kernel an op; everything that can be decided or allocated
// beforehand was, so that run() only reads and writes the operands that it is given.

#include <cstdint>
#include <memory>

#include "vdnn/op_library.h"
#include "vdnn/tape.h"

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

// What a kernel is compiled from. `algorithm` is an index into `op.algorithms`.
struct KernelRequest {
  const Tape& tape;
  const Op& op;
  std::uint32_t algorithm = 0;
};

}  // namespace vdnn::cpu
