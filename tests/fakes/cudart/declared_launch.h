#pragma once
// Launches a kernel that the stand-in executes, which it does not do for a kernel launched through CUDA. It
// is for users of the stand-in that know what their kernels do (tests/torch/fake_gpu). The kernel is a host
// function that runs in its stream's turn, and the launch declares the memory that the kernel reads and
// writes. The fake reports, by the kernels' names, unordered accesses and memory that is not the GPU's.

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vdnn_stand_in_range {
  const void* begin;
  size_t bytes;  // 0: none
} vdnn_stand_in_range;

// Calls kernel(data) once, in the turn of `stream`, unless the launch fails. `kernel` may use only its own
// memory and memory declared here, must make no call of CUDA and must not throw. Text and ranges need not
// outlive the call.
cudaError_t cudaStandInLaunch(cudaStream_t stream, const char* name, void (*kernel)(void*), void* data,
                              const vdnn_stand_in_range* reads, size_t read_count,
                              const vdnn_stand_in_range* writes, size_t write_count);

#ifdef __cplusplus
}
#endif
