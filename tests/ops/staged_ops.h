#pragma once
// A GPU's library of ops with operands in host memory, so that the tests of all libraries also cover it. Each
// op gets copies of its operands in device memory, with patterns between them, and its results are copied
// back. A write beside an operand, or into an operand that is only read, fails the test.

#include <memory>

#include "vdnn/gpu_system.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

// Uses GPU 0.
std::unique_ptr<OpLibrary> make_staged_ops(GpuSystem& gpus);

}  // namespace vdnn::testing
