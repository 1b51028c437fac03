#pragma once
// A GPU's library that takes operands in the host's memory, so that the suite of all libraries holds it, too:
// each op gets copies of its operands in device memory, with patterns between them, and what it has written
// comes back. A write beside an operand, or into what is only read, fails the test.

#include <memory>

#include "vdnn/gpu_system.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

// Of the GPU 0.
std::unique_ptr<OpLibrary> make_staged_ops(GpuSystem& gpus);

}  // namespace vdnn::testing
