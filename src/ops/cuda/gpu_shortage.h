#pragma once
// What a call says that failed for want of the GPU's memory. How much it asked for only CUDA knows.

#include <string>

namespace vdnn::cuda {

// Throws OutOfMemory with what the calling thread's GPU has in use and free.
[[noreturn]] void throw_out_of_memory(const std::string& what);

}  // namespace vdnn::cuda
