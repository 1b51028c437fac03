#pragma once
// All our own kernels, and the table that launches them, on the device or by an emulation on the host.

#include <memory>
#include <variant>

#include "src/ops/cuda/kernels/activations.h"
#include "src/ops/cuda/kernels/batch_normalization.h"
#include "src/ops/cuda/kernels/bias.h"
#include "src/ops/cuda/kernels/class_losses.h"
#include "src/ops/cuda/kernels/column_sums.h"
#include "src/ops/cuda/kernels/conversion.h"
#include "src/ops/cuda/kernels/copy_columns.h"
#include "src/ops/cuda/kernels/dropout.h"
#include "src/ops/cuda/kernels/gradient_norm.h"
#include "src/ops/cuda/kernels/group_normalization.h"
#include "src/ops/cuda/kernels/loss_scaling.h"
#include "src/ops/cuda/kernels/mean_squared_error.h"
#include "src/ops/cuda/kernels/row_sums.h"
#include "src/ops/cuda/kernels/updates.h"
#include "src/ops/cuda/kernels/upsampling.h"

namespace vdnn::cuda {

// Joins several variants into one variant with the kernels of all of them.
template <class... Lists>
struct Joined;
template <class... Kernels>
struct Joined<std::variant<Kernels...>> {
  using Type = std::variant<Kernels...>;
};
template <class... Kernels, class... More, class... Lists>
struct Joined<std::variant<Kernels...>, std::variant<More...>, Lists...>
    : Joined<std::variant<Kernels..., More...>, Lists...> {};

// The kernels of one format of feature maps.
template <class Format>
using KernelsOf =
    std::variant<ReluForward<Format>, ReluBackward<Format>, SigmoidForward<Format>, SigmoidBackward<Format>,
                 Addition<Format>, BiasAddition<Format>, BiasGradient<Format>, Dropout<Format>,
                 UpsampleNearest<Format>, UpsampleLinear<Format>, UpsampleBackward<Format>,
                 ProductSums<Format>, GroupNormalize<Format>, GroupGradient<Format>>;
using KernelsOfFormats = Joined<KernelsOf<Fp32>, KernelsOf<Fp16>, KernelsOf<Bf16>>::Type;

using Conversions = std::variant<Conversion<Fp32, Fp16>, Conversion<Fp32, Bf16>, Conversion<Fp16, Fp32>,
                                 Conversion<Fp16, Bf16>, Conversion<Bf16, Fp32>, Conversion<Bf16, Fp16>>;

// Kernels that do not depend on the format of feature maps, since they work on bytes or always in fp32.
using OtherKernels =
    std::variant<CopyColumns<Word16>, CopyColumns<Word4>, CopyColumns<Word2>, ScaledDifference,
                 StoreSquaredError, Probabilities, SoftmaxGradient, StoreDice, StoreMetrics, DiceGradient,
                 StoreNorm, StoreLossScaledNorm, ScaledGradientMap, LossScaleUpdate, RoundSums,
                 GroupStatistics, ScaleAndShiftGradients, GroupCoefficients, BatchStatistics,
                 ReciprocalDeviations, FollowStatistic, MeanShare, VarianceShare, GradientMeans,
                 MeanCoefficients, Sgd, Adam, GradientSum, LogSums, SquareSums, RowSums<SquaredDifference>,
                 RowSums<PlaceMetrics>, RowSums<PlaceCounts>, RowSums<SampleCounts>, RowSums<ClassSums>,
                 RowSums<DiceCoefficients>, RowSums<ScaledGradients>, RowSums<Partial<1>>,
                 RowSums<Partial<2>>, RowSums<Partial<3>>>;

using Kernel = Joined<KernelsOfFormats, Conversions, OtherKernels>::Type;

static_assert(sizeof(Kernel) <= 4096, "more than a launch can pass on every GPU");

class KernelTable {
 public:
  KernelTable() = default;
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;
  virtual ~KernelTable() = default;

  // Submits the kernel to the stream (a cudaStream_t). Memory that its arguments refer to must stay valid
  // until the kernel has run. Throws a DeviceError that names CUDA's error, the kernel and its size.
  virtual void launch(const Kernel& kernel, void* stream) const = 0;
};

// Launches on the calling thread's GPU. Throws DeviceError in a build without CUDA, or without code for that
// GPU's architecture.
std::unique_ptr<const KernelTable> make_kernel_table();

}  // namespace vdnn::cuda
