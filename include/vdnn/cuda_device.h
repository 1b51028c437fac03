#pragma once
// The `cuda` driver: streams and memory of an NVIDIA GPU.
//
// A stream is a non-blocking CUDA stream. An event from a pool (timing off) follows each submission, so that
// a wait refers exactly to one submission even if more have followed. The host sleeps in `synchronize`.
// Otherwise it sleeps in two cases only: if the end of a graph's launch cannot be recorded, which fails that
// launch, and, for an idle stream, before the first submission or capture while tracing. `Work::run` is
// called at once, on the submitting thread, with the cudaStream_t. It submits kernels, and its exceptions
// surface late, as on every device.
//
// Device memory is virtual: a reservation is address space, which commit() maps in whole granules (2 MiB on
// today's GPUs) and decommit() unmaps. Physical allocations are larger: up to a 64th of their offset in the
// reservation, at most 64 MiB, so that 80 GiB need 1,600 of them. An allocation stays as a whole while a part
// of it is committed. Until the rest is decommitted or committed again, the GPU holds slightly more memory
// than is counted. Reservations of up to 256 MiB are exact. A GPU without virtual memory management allocates
// a reservation's memory at once and in one piece; commits are only counted. Page-locked memory is touched
// first and then registered, which gives exact sizes and is faster than CUDA's own allocation. A copy is
// refused if its host side is not page-locked memory of the device, since CUDA would silently make it wait
// for the host.
//
// Errors contain CUDA's name for them, the call and the numbers. After an error that corrupts the process's
// context (an illegal address, a failed launch, an uncorrectable memory error) the device is lost: every
// later call throws DeviceError with lost() and the first cause.
//
// Calls set the GPU for the calling thread and restore the context that it had, primary or not. If it had
// none, they restore its GPU, provided that the process uses it. Restoring a GPU that the process does not
// use would allocate memory there. Captures of other threads are not disturbed, in any mode.
//
// `times` and traces are measured with timed events, and only while tracing, since timing slows the streams.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "vdnn/device.h"

namespace vdnn {

struct CudaDeviceOptions {
  int ordinal = 0;  // as CUDA counts the GPUs that it can see
  // Budget of the process on the GPU, in bytes. 0: all free memory except the reserve. More than is free is
  // refused. The memory of context and libraries (DeviceProperties::library_bytes) is subtracted first; the
  // rest, rounded down to granules, is DeviceProperties::budget_bytes.
  std::uint64_t budget_bytes = 0;
  // The memory of context and libraries in bytes, if it has been measured. Nothing: measured by the card's
  // own figures while the device is made. That is the context's memory, unless the process has used the GPU
  // earlier.
  std::optional<std::uint64_t> library_bytes;
  // Budget for page-locked memory in bytes. 0: half of the machine's memory, or of the limit of the process's
  // control group (a container's) if that is less.
  std::uint64_t host_budget_bytes = 0;
  // GPUs whose work may touch all device memory of this device, too, as CUDA counts them: others than
  // `ordinal`, each once. On a GPU without virtual memory management, the peers can then access all of the
  // process's memory on this GPU until the process ends, and the process begins to use the peers.
  std::vector<int> peers;
  // If less than budget_bytes is free, but at least this much, the free memory is the budget. At most
  // budget_bytes. Nothing: budget_bytes.
  std::optional<std::uint64_t> least_budget_bytes;
  // The part of the free memory that stays unused if budget_bytes is 0. It is for memory that CUDA and
  // libraries allocate after the measurement: code of kernels, which is loaded at their first launch, page
  // tables of mapped memory, graphs. Nothing: 256 MiB, or 2 % of the free memory if that is more.
  std::optional<std::uint64_t> reserve_bytes;
};

// Throws DeviceError if the driver, the GPU or the library's own CUDA is missing or too old, or if a peer
// cannot access the GPU's memory; the error names which. Throws InvalidArgument for an impossible ordinal,
// peer or budget, and OutOfMemory if less than the budget is free, or too little for a default budget.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace vdnn
