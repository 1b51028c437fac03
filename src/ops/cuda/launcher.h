#pragma once
// The code of one op on a GPU: a function that launches kernels on a stream. A program holds one such
// function per op. All decisions that do not depend on the step are made when the function is built.

#include <functional>

#include "src/ops/cuda/kernel_table.h"
#include "src/ops/kernel_request.h"
#include "src/ops/operand_pointers.h"
#include "vdnn/op_library.h"

namespace vdnn::cuda {

using ops::KernelRequest;
using ops::read_pointer;
using ops::write_pointer;

// Kernels run in the order in which they are launched.
class Launcher {
 public:
  Launcher(const KernelTable& table, void* stream) : table_(table), stream_(stream) {}

  void launch(const Kernel& kernel) const { table_.launch(kernel, stream_); }
  void* stream() const { return stream_; }

 private:
  const KernelTable& table_;
  void* stream_;
};

// Operands have the order of the recipe. Call an OpKernel from one thread at a time; it may be any thread.
using OpKernel = std::function<void(const OpOperands&, const StepScalars&, const Launcher&)>;

}  // namespace vdnn::cuda
