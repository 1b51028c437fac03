#pragma once
// The algorithms of a GPU library for a convolution, each with its workspace and a time from a simple model.
// Notation: batch N, C channels in, K out, R x S the window, P x Q the output; E bytes per element. The three
// passes exchange the roles of X, Y and the filter, so arithmetic and workspace are those of the forward pass
// unless stated otherwise.
//
//   name                   applies to                             workspace in bytes
//   implicit_gemm          everything                             0
//   implicit_precomp_gemm  no groups, no dilation                 4 C R S (K instead of C for the data
//                                                                 gradient): the offset of each row of the
//                                                                 matrix of windows
//   gemm                   two dimensions, no groups or dilation  E N C R S P Q: the matrix of windows
//   fft                    as gemm; stride 1, kernel > padding,   8 F (N C + N K + K C), F = H' (W' / 2 + 1):
//                          padded input at most 256               the spectra of X, Y and filter; H', W': the
//                                                                 padded input, up to a power of 2
//   fft_tiling             as gemm; stride 1, kernel > padding,   8 x 544 (T (N C + N K) + K C): spectra of T
//                          kernel at most 32                      tiles of 32 x 32, which give
//                                                                 (33 - R) x (33 - S) outputs each
//   winograd               as gemm; stride 1, kernel 3 x 3;       64 K C: transformed filters of F(2x2, 3x3);
//                          forward and data gradient              data are transformed on the chip
//
// Conditions are those of cuDNN's documentation (versions 4 to 7). Only implicit GEMM computes groups and
// dilation.
//
// Time follows the roofline model of the Titan X of the vDNN paper, at the rates of
// share/devices/titan-x.json. The simulated device uses the same rates, so the algorithms are in the order of
// their predicted times. The bytes are those of the operands, counted once, and of the workspace, counted
// twice (written and read).
// Operations: 2 N K P Q C R S for a product; for FFTs 5/2 n log2 n per plane of n elements, and 8 for the
// product of each pair of frequencies. For four outputs, Winograd needs 16 multiply-adds instead of 36. It
// adds 32, 24 and 28 operations for a tile of data (once per block of 64 filters), of output and of filter
// (Lavin and Gray 2016).
//
// Not every method reaches the device's rate for convolutions, so a cost is the number of operations above,
// divided by the method's efficiency:
//
//   implicit_gemm    0.6   the inner loop addresses each element of the matrix of windows by divisions, while
//                          precomp only adds an offset from a table
//   fft, fft_tiling  0.55  transforms and products are separate kernels, so that work limited by memory does
//                          not overlap with work limited by arithmetic; and the products of one frequency are
//                          small matrices
//   winograd         0.75  tiles are transformed between the products, on units that the products need
//   the others       1
//
// The efficiencies were fitted, on a grid of 0.05, to measured times of forward and backward passes on a
// Titan X (convnet-benchmarks, fp32). cuDNN 4 took 81 ms for AlexNet(128) and 529 ms for VGG-A(64); the model
// gives 84 and 487 ms. Implicit GEMM was fitted to cuDNN 2, which had only direct methods. It took 231 and
// 1099 ms; the model gives 211 and 1205 ms. tests/run/vdnn2016_speeds_test.cpp checks the model against the
// times of cuDNN 4, and against the relative speeds of the vDNN paper, with a tolerance of 0.08.

#include <vector>

#include "src/ops/convolution.h"
#include "vdnn/op_catalog.h"
#include "vdnn/sim_device.h"

namespace vdnn::classic {

using ops::Convolution;

// Returns the algorithms with their costs, the fastest first; among equally fast ones, the one with the
// smaller workspace first. `pass` is forward or one of the gradients. `elements` is the type of X, Y, the
// filter and their gradients; transforms are always in fp32. Throws InvalidArgument if a workspace overflows
// 64 bits.
std::vector<Algorithm> convolution_algorithms(const Convolution& convolution, Direction pass,
                                              DataType elements = DataType::kF32);

// Returns the algorithms as convolution_algorithms() does, but on tensor cores. Methods that multiply
// matrices (implicit_gemm, implicit_precomp_gemm, gemm) use the elements' type, or TF32 for fp32, which is
// then part of the method's name. The transformed methods stay in fp32. The order follows the profile's
// rates, since the gain of TF32 differs by device. The efficiencies above apply.
std::vector<Algorithm> tensor_core_algorithms(const Convolution& convolution, Direction pass,
                                              const SimProfile& profile, DataType elements = DataType::kF32);

}  // namespace vdnn::classic
