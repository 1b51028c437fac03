#pragma once
// The operands of layers by name, and the order in which each op of normalisations and losses reads and
// writes them. Recipes are made from these lists, and kernels find their operands in them, so both use the
// same names. Code that names an operand which the op does not have fails to compile.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn::ops {

template <std::size_t kReads, std::size_t kWrites>
struct OpSignature {
  std::array<Operand, kReads> reads;
  std::array<Operand, kWrites> writes;

  // Positions in OpOperands.
  consteval std::uint32_t read(Operand operand) const { return position(reads, operand); }
  consteval std::uint32_t write(Operand operand) const { return position(writes, operand); }

  // The lists in the form that OpRecipe uses.
  std::vector<Operand> read_list() const { return {reads.begin(), reads.end()}; }
  std::vector<Operand> write_list() const { return {writes.begin(), writes.end()}; }

 private:
  template <std::size_t kCount>
  static consteval std::uint32_t position(const std::array<Operand, kCount>& list, Operand operand) {
    const auto found = std::find(list.begin(), list.end(), operand);
    return found == list.end() ? throw "the op has no such operand"
                               : static_cast<std::uint32_t>(found - list.begin());
  }
};

// Convolutions and fully connected layers.
namespace filter {

inline constexpr Operand kX{OperandRole::kInput, 0};
inline constexpr Operand kY{OperandRole::kOutput, 0};
inline constexpr Operand kDX{OperandRole::kInputGradient, 0};
inline constexpr Operand kDY{OperandRole::kOutputGradient, 0};
inline constexpr Operand kWeights{OperandRole::kParameter, 0};
inline constexpr Operand kBias{OperandRole::kParameter, 1};
inline constexpr Operand kDWeights{OperandRole::kParameterGradient, 0};
inline constexpr Operand kDBias{OperandRole::kParameterGradient, 1};

}  // namespace filter

// Batch and group normalisation.
namespace normalization {

inline constexpr Operand kX{OperandRole::kInput, 0};
inline constexpr Operand kY{OperandRole::kOutput, 0};
inline constexpr Operand kDX{OperandRole::kInputGradient, 0};
inline constexpr Operand kDY{OperandRole::kOutputGradient, 0};
inline constexpr Operand kScale{OperandRole::kParameter, 0};
inline constexpr Operand kShift{OperandRole::kParameter, 1};
inline constexpr Operand kDScale{OperandRole::kParameterGradient, 0};
inline constexpr Operand kDShift{OperandRole::kParameterGradient, 1};
inline constexpr Operand kMean{OperandRole::kSaved, 0};
// The second saved statistic: the reciprocal deviation of group normalisation, or the variance of batch
// normalisation.
inline constexpr Operand kReciprocalDeviation{OperandRole::kSaved, 1};
inline constexpr Operand kVariance{OperandRole::kSaved, 1};

// The ops of training. In inference, group normalisation writes only Y.
inline constexpr OpSignature<3, 3> kForward{{kX, kScale, kShift}, {kY, kMean, kVariance}};
inline constexpr OpSignature<5, 3> kBackward{{kX, kMean, kVariance, kDY, kScale}, {kDX, kDScale, kDShift}};

// Operands and ops that only batch normalisation has.
inline constexpr Operand kRunningMean{OperandRole::kParameter, 2};
inline constexpr Operand kRunningVariance{OperandRole::kParameter, 3};

inline constexpr OpSignature<5, 1> kInference{{kX, kScale, kShift, kRunningMean, kRunningVariance}, {kY}};
inline constexpr OpSignature<4, 2> kFollow{{kMean, kVariance, kRunningMean, kRunningVariance},
                                           {kRunningMean, kRunningVariance}};

// Batch normalisation over several ranks. "Own" statistics are those of this rank's batch.
inline constexpr Operand kOwnMean{OperandRole::kSaved, 2};
inline constexpr Operand kOwnVariance{OperandRole::kSaved, 3};
inline constexpr Operand kGradientMeans{OperandRole::kGradientStatistic, 0};

inline constexpr OpSignature<1, 3> kStatistics{{kX}, {kMean, kOwnMean, kOwnVariance}};
inline constexpr OpSignature<3, 1> kVarianceShare{{kMean, kOwnMean, kOwnVariance}, {kVariance}};
inline constexpr OpSignature<5, 1> kNormalize{{kX, kScale, kShift, kMean, kVariance}, {kY}};
inline constexpr OpSignature<4, 3> kSums{{kX, kMean, kVariance, kDY}, {kGradientMeans, kDScale, kDShift}};
inline constexpr OpSignature<6, 1> kGradient{{kX, kMean, kVariance, kDY, kScale, kGradientMeans}, {kDX}};

}  // namespace normalization

// Losses over classes. Only dice cross-entropy has Dice coefficients.
namespace class_loss {

inline constexpr Operand kLogits{OperandRole::kInput, 0};
inline constexpr Operand kTargets{OperandRole::kInput, 1};
inline constexpr Operand kMetrics{OperandRole::kOutput, 0};
inline constexpr Operand kDLogits{OperandRole::kInputGradient, 0};
inline constexpr Operand kProbabilities{OperandRole::kSaved, 0};
inline constexpr Operand kDice{OperandRole::kSaved, 1};

// The ops of training. In inference, the forward op writes only the metrics.
inline constexpr OpSignature<2, 3> kForward{{kLogits, kTargets}, {kMetrics, kProbabilities, kDice}};
inline constexpr OpSignature<3, 1> kBackward{{kProbabilities, kTargets, kDice}, {kDLogits}};

}  // namespace class_loss

}  // namespace vdnn::ops
