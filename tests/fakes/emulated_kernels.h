#pragma once
// Our own kernels (src/ops/cuda/kernels/) on the host. Their bodies run block by block and phase by phase,
// with the threads of each phase in sequence. In any order of threads the results must be the same, unless a
// barrier is missing. Shared memory is NaN at first.

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
  kRandom  // another order for each phase
};

std::unique_ptr<const cuda::KernelTable> make_emulated_kernels(ThreadOrder order, std::uint32_t seed = 1,
                                                               HostLaunch launch = run_at_once);
// The first function returns the backends on which the library of CUDA's ops runs: these kernels, and the
// fake of the vendors' libraries (fake_vendor_library.h). The second one returns the library over these
// backends.
cuda::Backends make_emulated_backends(ThreadOrder order, const HostLaunch& launch = run_at_once);
std::unique_ptr<OpLibrary> make_emulated_cuda_ops(ThreadOrder order, const HostLaunch& launch = run_at_once);

}  // namespace vdnn::testing
