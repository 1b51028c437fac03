#pragma once
// A communicator of GPUs through NCCL (libnccl.so.2, which is opened when the first one is made: programs
// start without it).
//
// NCCL's communicators can wait in three places: while ranks find each other, in a collective that a rank
// does not come to, and while they are given up. Here all three are non-blocking (ncclConfig_t::blocking = 0)
// and polled with ncclCommGetAsyncError, within a time that the options say; when it is over, or where NCCL
// reports an error, ncclCommAbort ends the kernels that wait on the GPU. Inside a step the host waits until
// NCCL has launched a collective, since a stream may be given nothing else before. Some releases launch every
// collective of a non-blocking communicator from a thread of their own.
//
// Capture: a graph with a collective of several ranks outlives every way to end its communicator. Both
// ncclCommFinalize and ncclCommAbort wait until the last such graph has been destroyed, even where a rank has
// died. So on a thread that captures (Device::capture) collectives throw InvalidArgument where the
// communicator has more than one rank; nothing is broken off.
//
// Memory: since 2.22 NCCL connects ranks at the first collective that one of its algorithms computes, and
// allocates the memory for that then (NCCL_RUNTIME_CONNECT). It picks the algorithm by kind, reduction and
// size: broadcasts use rings, and on GPUs that an NVSwitch connects sums of floats use NVLS where averages do
// not. So before its memory is measured, the ranks make a broadcast, and sums and averages of many sizes,
// from one value to a whole bucket, each four times the last, in each type that will be reduced. Until these
// have completed they need 4/3 of a bucket's size of the GPU's memory, outside the budget.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "vdnn/communicator.h"

namespace vdnn {

// How ranks find each other: rank 0's goes to all of them. All zeros: rank 0 could not make one.
using NcclId = std::array<std::byte, 128>;

struct NcclOptions {
  int rank = 0;     // 0 .. size - 1, each once
  int size = 1;     // the same on every rank
  int ordinal = 0;  // of the device's GPU (CudaDeviceOptions::ordinal)
  // Called once on each rank: on return `id` is what rank 0 called it with (a broadcast, as MPI's). It is
  // called before anything else can fail but the check of these options.
  std::function<void(NcclId& id)> exchange_id;
  double start_seconds = 60;  // in which all ranks must have come, and then be connected; above 0
  double wait_seconds = 30;   // Communicator::wait(), and what NCCL may take to launch a collective; above 0
  // Size of the largest all-reduce that will be made; the same on every rank. NCCL may pick another algorithm
  // for a larger one, whose connections library_bytes() does not count.
  std::uint64_t bucket_bytes = std::uint64_t{25} << 20U;
  // Another type that will be reduced beside fp32, or fp32; the same on every rank. Its connections are made
  // and counted, too.
  DataType bucket_type = DataType::kF32;
};

// Joins `device`, which is the GPU of the options, with those of the other ranks. Throws InvalidArgument for
// options that cannot be, DeviceError where NCCL is missing or too old, fails, or other ranks do not come in
// time, and where NCCL_COMM_BLOCKING=1 in the environment would make NCCL's calls wait without limit.
std::unique_ptr<Communicator> make_nccl_communicator(Device& device, const NcclOptions& options);

}  // namespace vdnn
