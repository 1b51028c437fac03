#pragma once
// All kernels of our own, and the one way to launch them: a table that the device's own launches or an
// emulation on the host stands behind.

#include <memory>
#include <variant>

#include "src/ops/cuda/kernels/activations.h"
#include "src/ops/cuda/kernels/batch_normalization.h"
#include "src/ops/cuda/kernels/bias.h"
#include "src/ops/cuda/kernels/class_losses.h"
#include "src/ops/cuda/kernels/column_sums.h"
#include "src/ops/cuda/kernels/copy_columns.h"
#include "src/ops/cuda/kernels/dropout.h"
#include "src/ops/cuda/kernels/gradient_norm.h"
#include "src/ops/cuda/kernels/group_normalization.h"
#include "src/ops/cuda/kernels/mean_squared_error.h"
#include "src/ops/cuda/kernels/row_sums.h"
#include "src/ops/cuda/kernels/updates.h"
#include "src/ops/cuda/kernels/upsampling.h"

namespace vdnn::cuda {

using Kernel =
    std::variant<ReluForward, ReluBackward, SigmoidForward, SigmoidBackward, Addition, BiasAddition,
                 CopyColumns, Dropout, UpsampleNearest, UpsampleLinear, UpsampleBackward, ScaledDifference,
                 StoreSquaredError, Probabilities, SoftmaxGradient, StoreDice, StoreMetrics, DiceGradient,
                 StoreNorm, RoundSums, GroupStatistics, GroupNormalize, ScaleAndShiftGradients,
                 GroupCoefficients, GroupGradient, BatchStatistics, ReciprocalDeviations, FollowStatistic,
                 MeanShare, VarianceShare, GradientMeans, MeanCoefficients, Sgd, Adam, GradientSum, LogSums,
                 SquareSums, RowSums<SquaredDifference>, RowSums<PlaceMetrics>, RowSums<PlaceCounts>,
                 RowSums<SampleCounts>, RowSums<ClassSums>, RowSums<DiceCoefficients>,
                 RowSums<ScaledGradients>, RowSums<Partial<1>>, RowSums<Partial<2>>, RowSums<Partial<3>>,
                 ColumnSums<BiasTerm>, ColumnSums<Products>>;

static_assert(sizeof(Kernel) <= 4096, "more than a launch can pass on every GPU");

class KernelTable {
 public:
  KernelTable() = default;
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;
  virtual ~KernelTable() = default;

  // Submits it to the stream (a cudaStream_t). What it is given has to stay as it is until it has run. Throws
  // DeviceError with CUDA's name, the kernel and its size.
  virtual void launch(const Kernel& kernel, void* stream) const = 0;
};

// Launches on the calling thread's GPU. Throws DeviceError in a build without CUDA, or without code for that
// GPU's architecture.
std::unique_ptr<const KernelTable> make_kernel_table();

}  // namespace vdnn::cuda
