#pragma once
// The `cuda` driver: streams and memory of an NVIDIA GPU.
//
// A stream is a non-blocking CUDA stream. Each submission is followed by an event from a pool (timing off),
// so that a wait names exactly what it waits for, also when the stream has been given more since. The host
// sleeps in `synchronize`; besides, only where the end of a graph's launch cannot be recorded, which fails
// that launch, and, for an idle stream, before the first submission or capture while tracing. `Work::run` is
// called at once, on the submitting thread, with the cudaStream_t: it submits kernels, and what it throws
// surfaces late, as on every device.
//
// Device memory is virtual: a reservation is address space, which commit() maps in whole granules (2 MiB on
// today's GPUs) and decommit() unmaps. Physical allocations are larger: up to a 64th of their offset in the
// reservation, 64 MiB at most, so that 80 GiB take 1,600. One of which a part stays committed stays as a
// whole: the GPU then has that little more than is counted as committed, until the rest of it is decommitted
// or committed again. Reservations of up to 256 MiB are exact. A GPU without virtual memory management gives
// a reservation's memory in one piece and at once; commits only count. Page-locked memory is touched first
// and then registered: that gives exact sizes, and is faster than asking CUDA for it. A copy whose host side
// is not page-locked memory of the device is refused, since CUDA would quietly make it wait for the host.
//
// Errors carry CUDA's name for them, the call and the numbers. After one that corrupts the process's context
// (an illegal address, a failed launch, an uncorrectable memory error) the device is lost: every later call
// throws DeviceError with lost() and the first cause.
//
// Calls set the GPU for the calling thread and put back the context that it had, primary or not. Where it had
// none, they put back its GPU if the process uses that one: to put back another would be to begin to use it,
// and take memory there. Captures of other threads, in whatever mode, are not disturbed.
//
// `times` and traces are measured with timed events, and only while tracing: timing what nobody looks at
// would hold up the streams.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "vdnn/device.h"

namespace vdnn {

struct CudaDeviceOptions {
  int ordinal = 0;  // as CUDA counts the GPUs that it can see
  // What the process may take of the GPU's memory, in bytes. 0: all that is free but for the reserve. More
  // than is free is refused. What context and libraries take (DeviceProperties::library_bytes) is subtracted
  // first, the rest, rounded down to granules, is DeviceProperties::budget_bytes.
  std::uint64_t budget_bytes = 0;
  // What context and libraries take, where that has been measured. Nothing: what making the device takes, as
  // the card sees it; that is the context, unless the process has used the GPU before.
  std::optional<std::uint64_t> library_bytes;
  // Budget for page-locked memory in bytes. 0: half of the machine's memory, or of what the
  // process's control group (a container's) may take of it.
  std::uint64_t host_budget_bytes = 0;
  // GPUs whose work may touch all device memory of this device, too, as CUDA counts them: others than
  // `ordinal`, each once. On a GPU without virtual memory management that lets them into all that the process
  // has of it, for as long as it runs, and begins to use them.
  std::vector<int> peers;
  // Where less than budget_bytes is free, but so much, that is the budget. No more than budget_bytes.
  // Nothing: budget_bytes.
  std::optional<std::uint64_t> least_budget_bytes;
  // Kept back of what is free where budget_bytes is 0, for what CUDA and libraries take when they have been
  // measured already: code of kernels, which is loaded when they are first launched, page tables of what is
  // mapped, graphs. Nothing: 256 MiB, or 2 % of what is free where that is more.
  std::optional<std::uint64_t> reserve_bytes;
};

// Throws DeviceError, which says whether the driver, the GPU or the library's own CUDA is missing or too old,
// or which peer cannot touch memory of which GPU, InvalidArgument for an ordinal, a peer or a budget that
// cannot be, OutOfMemory where less than the budget is free, or too little for a default one.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace vdnn
