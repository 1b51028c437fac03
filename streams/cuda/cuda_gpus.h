#pragma once
// Which GPUs there are to be driven, and how much each has free.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// At least one. Throws DeviceError if the driver or a GPU is missing, or a part of the driver is too old.
int require_gpus(CudaContext& context);

// Likewise; InvalidArgument where the context's GPU is none of them.
void require_gpu(CudaContext& context);

// Throws InvalidArgument where `peers` are not other GPUs than the context's that exist, each named once, and
// DeviceError where one of them cannot touch memory of the context's. Uses none of them.
void require_peers(CudaContext& context, std::span<const int> peers);

// Of a GPU that is there. Uses it no more than that.
CudaDeviceInfo info_of(CudaContext& context, int ordinal);

// Of the virtual memory that is taken of the context's GPU, which `info` describes: all others that the GPU
// supports may be let to it, beyond this process's own work.
CudaMemoryKind memory_kind_of(const CudaContext& context, const CudaDeviceInfo& info);
// The unit of its allocations; a power of two.
std::uint64_t granule_of(CudaContext& context, const CudaMemoryKind& kind);

// The other GPUs that can touch memory of the context's, in ascending order.
std::vector<int> peers_of(CudaContext& context);

struct CardMemory {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
};

// Of the calling thread's GPU, which is the context's.
CardMemory memory_of(CudaContext& context);

// The result of cudaMemGetInfo for the context's GPU, which is one of them. While the process does not use
// that GPU, the card itself is asked, and the process still does not use it. If the card cannot be asked
// (there is no NVML), the query takes hundreds of megabytes, which are released at once.
std::uint64_t free_bytes_of_gpu(CudaContext& context);

// The decrease of the card's free memory by begin(), which begins to use the context's GPU: the memory of
// context and libraries. If the card cannot be asked before (there is no NVML), it is all memory that is not
// free then, that of other processes included, so that it is never too little.
std::uint64_t bytes_taken_by(CudaContext& context, const std::function<void()>& begin);

// Of CUDA, as the context's driver is for: "13.0".
std::string driver_version_of(CudaContext& context);

}  // namespace vdnn
