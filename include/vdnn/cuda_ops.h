#pragma once
// Layer mathematics on NVIDIA GPUs. Feature maps are NHWC (NDHWC), parameters dense. Filters have KRSC order;
// those of transposed convolutions have C outermost. cuDNN computes convolutions, pooling and local response
// normalisation. cuBLASLt computes fully connected layers. Kernels of our own compute everything else. The
// algorithms of a convolution are the engines that cuDNN lists for the GPU. GpuSystem::make_ops()
// (gpu_system.h) tries them on the GPU before it offers them; make_cuda_ops() offers them as listed.
//
// Results are bit-identical for the same GPU, build and libraries. Sums have a fixed order and no atomics,
// and only engines with reproducible bits that do not round fp32 to TF32 are used. Results may differ from
// those of `cpu` by roundings. No GPU has run the libraries' part yet: tests compare it with the references
// on a fake of the libraries.
//
// Ops submit to the given stream, which must belong to the calling thread's current GPU, and do not wait for
// it. If a target is not a class, the loss becomes NaN, whereas the ops of `cpu` refuse it. A Session
// refuses such a target before the step.

#include <memory>

#include "vdnn/op_library.h"

namespace vdnn {

// Makes the library for the calling thread's current GPU. Throws DeviceError in a build without CUDA
// (VDNN_CUDA) or cuDNN, and if there is no GPU, no cuDNN or no cuBLASLt.
std::unique_ptr<OpLibrary> make_cuda_ops();

}  // namespace vdnn
