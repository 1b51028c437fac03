#pragma once
// What a stream of a program that we do not run is known by, and whether it is captured.
//
// Calls are made within a scope of the context.

#include <cstdint>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// Never that of another stream, not of one that is gone either. Throws InvalidArgument where there is no such
// stream.
std::uint64_t id_of(CudaContext& context, CudaStream stream);
// Of the legacy stream, also whether a blocking stream of the GPU is.
bool is_captured(CudaContext& context, CudaStream stream);

}  // namespace vdnn
