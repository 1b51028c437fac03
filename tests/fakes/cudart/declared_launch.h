#pragma once
// A kernel that is computed, for whatever runs on the stand-in and knows what kernels do
// (tests/torch/fake_gpu): a function of the host that runs in its stream's turn, with the memory that it
// reads and writes declared. The judge of order reports accesses that nothing orders by the kernels' names,
// and memory that is not the GPU's.

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vdnn_stand_in_range {
  const void* begin;
  size_t bytes;  // 0: none
} vdnn_stand_in_range;

// Calls kernel(data) once, in the turn of `stream`, unless the launch fails. `kernel` may use only memory
// that is declared here or is its own, makes no calls of CUDA and throws nothing. Text and ranges need to
// live for the call.
cudaError_t cudaStandInLaunch(cudaStream_t stream, const char* name, void (*kernel)(void*), void* data,
                              const vdnn_stand_in_range* reads, size_t read_count,
                              const vdnn_stand_in_range* writes, size_t write_count);

#ifdef __cplusplus
}
#endif
