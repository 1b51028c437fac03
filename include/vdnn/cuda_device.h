#pragma once
// The `cuda` driver: streams and memory of an NVIDIA GPU.
//
// A stream is a non-blocking CUDA stream. An event from a pool (timing off) follows each submission, so that
// a wait refers exactly to one submission even if more have followed. The host sleeps in `synchronize`.
// Otherwise it sleeps in two cases only. If the end of a graph's launch cannot be recorded, the host waits,
// and the launch fails. The device's clock starts with the first traced submission or capture, and for that
// the host waits once. `Work::run` is called at once, on the submitting thread, with the cudaStream_t. It
// submits kernels, and its exceptions surface late, as on every device.
//
// Device memory is virtual: a reservation is address space, which commit() maps in whole granules (2 MiB on
// today's GPUs) and decommit() unmaps. Physical allocations are larger: up to a 64th of their offset in the
// reservation, at most 64 MiB, so that 80 GiB consist of 1,600 allocations. The GPU keeps a whole allocation
// while any part of it is committed. So after a part has been decommitted, the GPU holds slightly more memory
// than is counted, until the rest is decommitted or the part is committed again. For reservations of up to
// 256 MiB, the GPU holds exactly what is counted. A GPU without virtual memory management allocates a
// reservation's memory at once and in one piece; commits are only counted. Page-locked memory is touched
// first and then registered, which gives exact sizes and is faster than CUDA's own allocation. A copy is
// refused if its host side is not page-locked memory of the device, since CUDA would silently make it wait
// for the host.
//
// Errors contain CUDA's name for them, the call and the numbers. After an error that corrupts the process's
// context (an illegal address, a failed launch, an uncorrectable memory error) the device is lost: every
// later call throws DeviceError with lost() and the first cause.
//
// Each call sets the calling thread's current GPU. Before it returns, it restores the thread's previous
// context, primary or not. If the thread had no context, the call restores the thread's previous GPU, but
// only if the process uses that GPU: otherwise restoring it would allocate memory there. Captures of other
// threads are not disturbed, in any capture mode.
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
  // Budget of the process on the GPU, in bytes. 0: all free memory except the reserve. A budget above the
  // free memory is refused. The memory of context and libraries (DeviceProperties::library_bytes) is
  // subtracted first; the rest, rounded down to granules, is DeviceProperties::budget_bytes.
  std::uint64_t budget_bytes = 0;
  // The memory of context and libraries in bytes, if it has been measured. Absent: it is measured by the
  // card's own figures while the device is made. The result is the memory of the context. If the process has
  // used the GPU earlier, the context exists already, and its memory may be missing from the result.
  std::optional<std::uint64_t> library_bytes;
  // Budget for page-locked memory in bytes. 0: half of the machine's memory, or of the limit of the process's
  // control group (a container's) if that is less.
  std::uint64_t host_budget_bytes = 0;
  // Ordinals of the other GPUs whose work may also access all memory of this device: each once, without
  // `ordinal`. On a GPU without virtual memory management, the process begins to use the peers, and they can
  // access all of its memory on this GPU until it ends.
  std::vector<int> peers;
  // The least acceptable budget, at most budget_bytes. If less than budget_bytes is free, but at least this
  // much, the free memory is the budget. Absent: budget_bytes.
  std::optional<std::uint64_t> least_budget_bytes;
  // The part of the free memory that stays unused if budget_bytes is 0. It is for memory that CUDA and
  // libraries allocate after the measurement: graphs, page tables of mapped memory, and the code of kernels,
  // which is loaded at their first launch. Absent: 256 MiB, or 2 % of the free memory if that is more.
  std::optional<std::uint64_t> reserve_bytes;
};

// Throws DeviceError, which names the cause, if the driver, the GPU or the library's own CUDA is missing or
// too old, or if a peer cannot access the GPU's memory. Throws InvalidArgument for an impossible ordinal,
// peer or budget, and OutOfMemory if less than the budget is free, or too little for a default budget.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace vdnn
