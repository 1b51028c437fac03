#pragma once
// Kernels of our own (src/ops/cuda/kernels/) on the host: their bodies are run block by block and phase by
// phase, the threads of each phase one after the other. In another order the results have to be the same;
// where a barrier is missing they are not. Shared memory holds NaN at first.

#include <cstdint>
#include <memory>

#include "src/ops/cuda/cuda_ops.h"
#include "src/ops/cuda/kernel_table.h"
#include "tests/fakes/host_launch.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

enum class ThreadOrder : std::uint8_t {
  kForward,
  kReversed,
  kRandom  // another one for each phase
};

std::unique_ptr<const cuda::KernelTable> make_emulated_kernels(ThreadOrder order, std::uint32_t seed = 1,
                                                               HostLaunch launch = run_at_once);
// All that the library stands on, with the fake of the vendors' (fake_vendor_library.h), and the whole of it.
cuda::Backends make_emulated_backends(ThreadOrder order, const HostLaunch& launch = run_at_once);
std::unique_ptr<OpLibrary> make_emulated_cuda_ops(ThreadOrder order, const HostLaunch& launch = run_at_once);

}  // namespace vdnn::testing
