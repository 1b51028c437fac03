#pragma once
// A communicator of GPUs through NCCL. libnccl.so.2 is opened when the first communicator is made, so
// programs start without it.
//
// NCCL can wait in three places: while ranks find each other, in a collective that a rank does not join, and
// while a communicator is destroyed. Here all three are non-blocking (ncclConfig_t::blocking = 0) and polled
// with ncclCommGetAsyncError, within the time of the options. After a timeout or an error of NCCL,
// ncclCommAbort ends the kernels that wait on the GPU. Inside a step the host waits until NCCL has launched a
// collective, since nothing else may be submitted to the stream until then. Some releases launch every
// collective of a non-blocking communicator from a separate thread.
//
// Capture: no call ends a communicator while a graph with one of its collectives exists. Both
// ncclCommFinalize and ncclCommAbort wait until the last such graph has been destroyed, even if a rank has
// died. So on a thread that captures (Device::capture), collectives throw InvalidArgument if the communicator
// has more than one rank; nothing is broken off.
//
// Memory: since 2.22 NCCL connects ranks at the first collective that one of its algorithms computes, and
// allocates the memory for the connections then (NCCL_RUNTIME_CONNECT). It picks the algorithm by kind and
// size: broadcasts use rings, and sums of floats use NVLS on GPUs that an NVSwitch connects. So before the
// memory is measured, the ranks run a broadcast, and sums in each type that will be reduced. The sizes of the
// sums are from one value to a whole bucket, each four times the previous one. Until these collectives have
// completed, they need GPU memory of 4/3 of a bucket's size, outside the budget.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "vdnn/communicator.h"

namespace vdnn {

// The id by which ranks find each other: rank 0 makes it, and all ranks use it. All zeros: rank 0 failed.
using NcclId = std::array<std::byte, 128>;

struct NcclOptions {
  int rank = 0;     // 0 .. size - 1, each once
  int size = 1;     // the same on every rank
  int ordinal = 0;  // of the device's GPU (CudaDeviceOptions::ordinal)
  // Broadcasts rank 0's `id` to all ranks. Called once on each rank, directly after these options are
  // checked, so that no failure on one rank leaves the others waiting.
  std::function<void(NcclId& id)> exchange_id;
  double start_seconds = 60;  // for all ranks to join, and again to be connected; above 0
  double wait_seconds = 30;   // for Communicator::wait(), and for NCCL to launch a collective; above 0
  // Size of the largest all-reduce; the same on every rank. NCCL may pick another algorithm for a larger one,
  // and library_bytes() would not count its connections.
  std::uint64_t bucket_bytes = std::uint64_t{25} << 20U;
  // The type that will be reduced in addition to fp32; kF32 if there is none. The same on every rank.
  // Connections for this type are made and counted, too.
  DataType bucket_type = DataType::kF32;
};

// Joins `device`, the GPU of the options, with those of the other ranks. Throws InvalidArgument for options
// out of range. Throws DeviceError if NCCL is missing, too old or fails, and if other ranks do not join in
// time. Also throws it if NCCL_COMM_BLOCKING=1 is in the environment, since NCCL's calls would then wait
// without limit.
std::unique_ptr<Communicator> make_nccl_communicator(Device& device, const NcclOptions& options);

}  // namespace vdnn
