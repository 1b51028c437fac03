#pragma once
// Marks what nvcc compiles for the host and for GPUs, and every other compiler for the host.

#ifdef __CUDACC__
#define VDNN_HOST_DEVICE __host__ __device__
#else
#define VDNN_HOST_DEVICE
#endif
