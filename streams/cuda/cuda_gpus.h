#pragma once
// Queries: which GPUs exist, what they support, and how much memory each has free.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// The number of GPUs, at least one. Throws DeviceError if there is no driver or no GPU, or if the driver or
// the runtime is too old.
int require_gpus(CudaContext& context);

// Throws like require_gpus(), and throws InvalidArgument if the context's GPU does not exist.
void require_gpu(CudaContext& context);

// Throws InvalidArgument unless `peers` are existing GPUs other than the context's, each named once. Throws
// DeviceError if one of them cannot access memory of the context's GPU. Does not begin to use any of these
// GPUs.
void require_peers(CudaContext& context, std::span<const int> peers);

// Properties of a GPU, which must exist; the call does not begin to use it.
CudaDeviceInfo info_of(CudaContext& context, int ordinal);

// The kind of virtual memory to allocate on the context's GPU, which `info` describes. Other processes and
// network cards can access such memory as far as the GPU supports that.
CudaMemoryKind memory_kind_of(const CudaContext& context, const CudaDeviceInfo& info);
// The unit of allocations of this kind, in bytes; a power of two.
std::uint64_t granule_of(CudaContext& context, const CudaMemoryKind& kind);

// The other GPUs that can access memory of the context's GPU, in ascending order.
std::vector<int> peers_of(CudaContext& context);

struct CardMemory {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
};

// Memory of the calling thread's GPU, which must be the context's.
CardMemory memory_of(CudaContext& context);

// The free memory that cudaMemGetInfo reports for the context's GPU, which must exist. If the process does
// not use the GPU yet, the result is NVML's, so that the query does not begin to use it. Without NVML, the
// query allocates hundreds of megabytes and releases them immediately.
std::uint64_t free_bytes_of_gpu(CudaContext& context);

// Calls begin(), which begins to use the context's GPU. Returns the memory that context and libraries use:
// the decrease of the card's free memory. Without NVML, the result is all memory in use afterwards, including
// that of other processes, so that it is never too small.
std::uint64_t bytes_taken_by(CudaContext& context, const std::function<void()>& begin);

// The CUDA version that the driver supports, for example "13.0".
std::string driver_version_of(CudaContext& context);

}  // namespace vdnn
