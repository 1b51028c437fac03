#pragma once
// Marks functions that nvcc compiles for both host and GPUs; other compilers compile them for the host.

#ifdef __CUDACC__
#define VDNN_HOST_DEVICE __host__ __device__
#else
#define VDNN_HOST_DEVICE
#endif
