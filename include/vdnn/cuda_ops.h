#pragma once
// Layer mathematics on NVIDIA GPUs. Activations are NHWC (NDHWC), parameters dense; filters lie in KRSC
// order, those of transposed convolutions with C outermost. Convolutions, pooling and local response
// normalisation are cuDNN's, fully connected layers cuBLASLt's, everything else kernels of our own. The
// algorithms of a convolution are the engines that cuDNN lists for the GPU; workspace is counted with the op.
// GpuSystem::make_ops() (gpu_system.h) tries them on the GPU before it offers them, here they are taken as
// listed.
//
// Results are bit-identical for the same GPU, build and libraries: sums are taken in fixed orders, without
// atomics, and of the libraries' algorithms only those are taken that give the same bits twice and do not
// round fp32 to TF32. They may differ from those on `cpu` by roundings. No GPU has run the libraries' part
// yet: it is held to the references on a fake of the libraries.
//
// Ops submit to the stream that they are given, which belongs to the calling thread's current GPU, and do not
// wait for it. A target that is no class, which `cpu` refuses, is found too late here: the loss is NaN. A
// Session refuses it before the step.

#include <memory>

#include "vdnn/op_library.h"

namespace vdnn {

// For the calling thread's GPU. Throws DeviceError in a build without CUDA (VDNN_CUDA) or cuDNN, and where
// there is no GPU, no cuDNN or no cuBLASLt.
std::unique_ptr<OpLibrary> make_cuda_ops();

}  // namespace vdnn
