#pragma once
// Layer mathematics on NVIDIA GPUs. Activations are NHWC (NDHWC), parameters dense in KRSC order. So far the
// layers that kernels of our own compute: activations, sums, concatenation, dropout, upsampling, group
// normalisation, losses, optimizers and custom layers; its catalog refuses the others by name.
//
// Results are bit-identical for the same GPU and build: sums are taken in fixed orders, without atomics. They
// may differ from those on `cpu` by roundings.
//
// Ops submit to the stream that they are given, which belongs to the calling thread's current GPU, and do not
// wait for it. A target that is no class, which `cpu` refuses, is found too late here: the loss is NaN.

#include <memory>

#include "vdnn/op_library.h"

namespace vdnn {

// Throws DeviceError in a build without CUDA (VDNN_CUDA).
std::unique_ptr<OpLibrary> make_cuda_ops();

}  // namespace vdnn
