#pragma once
// Queries about a stream that the program has made: its ID, and whether it is being captured.
//
// The caller holds a CudaContext::Scope.

#include <cstdint>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// The stream's ID, unique among all streams, destroyed ones included. Throws InvalidArgument if there is no
// such stream.
std::uint64_t id_of(CudaContext& context, CudaStream stream);
// Whether the stream is being captured. For the legacy stream, also true if a blocking stream of the GPU is
// captured.
bool is_captured(CudaContext& context, CudaStream stream);

}  // namespace vdnn
