#pragma once
// Errors of calls that failed for lack of GPU memory. Only CUDA knows how much memory they requested.

#include <string>
#include <string_view>

namespace vdnn::cuda {

// True if cuDNN's text reports such a failure. The text is all that cudnn-frontend passes on.
constexpr bool tells_of_gpu_shortage(std::string_view cudnn_text) {
  return cudnn_text.find("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED") != std::string_view::npos;
}

// Throws OutOfMemory with the used and free memory of the calling thread's GPU.
[[noreturn]] void throw_out_of_memory(const std::string& what);

}  // namespace vdnn::cuda
