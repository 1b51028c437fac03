#pragma once
// What a call says that failed for want of the GPU's memory. How much it asked for only CUDA knows.

#include <string>
#include <string_view>

namespace vdnn::cuda {

// Does cuDNN's text say so? It is all that cudnn-frontend hands on of a status, whatever it was doing.
constexpr bool tells_of_gpu_shortage(std::string_view cudnn_text) {
  return cudnn_text.find("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED") != std::string_view::npos;
}

// Throws OutOfMemory with what the calling thread's GPU has in use and free.
[[noreturn]] void throw_out_of_memory(const std::string& what);

}  // namespace vdnn::cuda
