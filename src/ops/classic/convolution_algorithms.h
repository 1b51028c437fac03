#pragma once
// The algorithms that a GPU library has for a convolution, each with its workspace and the time that a simple
// model gives it. Notation: batch N, C channels in, K out, R x S the window, P x Q the output; E bytes an
// element. The three passes exchange the parts that X, Y and the filter play, so arithmetic and workspace are
// those of the forward pass unless said.
//
//   name                   applies to                             workspace in bytes
//   implicit_gemm          everything                             0
//   implicit_precomp_gemm  no groups, no dilation                 4 C R S (K instead of C for the data
//                                                                 gradient): the offset of each row of the
//                                                                 matrix of windows
//   gemm                   two dimensions, no groups or dilation  E N C R S P Q: the matrix of windows
//   fft                    as gemm; stride 1, kernel > padding,   8 F (N C + N K + K C), F = H' (W' / 2 + 1):
//                          padded input at most 256               the spectra of X, Y and filter; H', W': the
//                                                                 padded input, to a power of 2
//   fft_tiling             as gemm; stride 1, kernel > padding,   8 x 544 (T (N C + N K) + K C): spectra of T
//                          kernel at most 32                      tiles of 32 x 32, which give
//                                                                 (33 - R) x (33 - S) outputs each
//   winograd               as gemm; stride 1, kernel 3 x 3;       64 K C: transformed filters of F(2x2, 3x3);
//                          forward and data gradient              data are transformed on the chip
//
// Conditions are those of cuDNN's documentation (versions 4 to 7). Groups and dilation are left to implicit
// GEMM.
//
// Time is the roofline of the paper's Titan X, at the rates of share/devices/titan-x.json: what the simulated
// device will take, so that the order is that of the predicted times. Bytes are the operands once, and the
// workspace written and read. Arithmetic: a product takes 2 N K P Q C R S. FFTs take 5/2 n log2 n a plane of
// n elements, and 8 for the product of each pair of frequencies. Winograd takes 16 multiply-adds instead of
// 36 for four outputs, and 32, 24 and 28 operations for a tile of data (once a block of 64 filters), of
// output and of filter (Lavin and Gray 2016).
//
// Not every method reaches the device's rate for convolutions. A cost counts the operations that would take
// as long at that rate: those above, divided by the method's efficiency.
//
//   implicit_gemm    0.6   each element of the matrix of windows is addressed, with divisions, in the inner
//                          loop, where precomp only adds an offset that it looks up
//   fft, fft_tiling  0.55  transforms and products are kernels of their own, one after the other: what is
//                          limited by memory does not overlap with what is limited by arithmetic; and the
//                          products of one frequency are small matrices
//   winograd         0.75  tiles are transformed between the products, on units that the products need
//   the others       1
//
// The efficiencies were fitted, on a grid of 0.05, to times of forward and backward passes that
// were measured with cuDNN 4 on such a card (convnet-benchmarks, fp32): 81 ms for AlexNet(128), 529 ms for
// VGG-A(64), here 84 and 487; implicit GEMM to those with cuDNN 2, which had only direct methods: 231 and
// 1099 ms, here 211 and 1205. tests/train/vdnn2016_speeds_test.cpp holds the first two, and the
// relative speeds of the vDNN paper, which these give within 0.08.

#include <vector>

#include "src/ops/convolution.h"
#include "vdnn/op_catalog.h"
#include "vdnn/sim_device.h"

namespace vdnn::classic {

using ops::Convolution;

// Fastest first; among equals less workspace. Each with its cost. `pass`: forward or one of the gradients.
// Throws InvalidArgument where a workspace overflows 64 bits.
// `elements`: of X, Y, the filter and their gradients; transforms are in fp32 whatever these are.
std::vector<Algorithm> convolution_algorithms(const Convolution& convolution, Direction pass,
                                              DataType elements = DataType::kF32);

// The same on tensor cores: what multiplies matrices (implicit_gemm, implicit_precomp_gemm, gemm) does so in
// the elements' type, or of fp32 in TF32 and is then named so; the transformed methods stay in fp32. In the
// order of the profile's rates, since how much faster TF32 is differs by device. Efficiencies are those
// above.
std::vector<Algorithm> tensor_core_algorithms(const Convolution& convolution, Direction pass,
                                              const SimProfile& profile, DataType elements = DataType::kF32);

}  // namespace vdnn::classic
