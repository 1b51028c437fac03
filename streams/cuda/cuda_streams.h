#pragma once
// The identity of a stream of a program that we do not run, and whether it is being captured.
//
// Calls are made within a scope of the context.

#include <cstdint>

#include "streams/cuda/cuda_context.h"

namespace vdnn {

// Unique among all streams, ended ones included. Throws InvalidArgument if there is no such stream.
std::uint64_t id_of(CudaContext& context, CudaStream stream);
// Of the legacy stream, also whether a blocking stream of the GPU is.
bool is_captured(CudaContext& context, CudaStream stream);

}  // namespace vdnn
