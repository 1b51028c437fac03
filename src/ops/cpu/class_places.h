#pragma once
// What losses over classes share: a row of logits for each place, a target for each place, sums over pieces
// of so many places that one thread is enough for a batch without space, and whose order does not depend on
// the number of threads.

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/ops/standard_losses.h"
#include "vdnn/op_library.h"

namespace vdnn::cpu {

inline constexpr std::uint64_t kPlacesPerPiece = 4096;

// Does this place count?
inline bool counts(std::int32_t target) {
  return target >= 0;
}

// Of every place of the batch. Throws InvalidArgument where one is no class.
std::span<const std::int32_t> checked_targets(const ops::ClassPlaces& problem, const OpOperands& operands);
double count_places(std::span<const std::int32_t> targets);

// A row of logits.
struct Row {
  double log_sum = 0;       // log of the sum of exponentials
  std::size_t largest = 0;  // the first of equals

  explicit Row(std::span<const float> logits);
};
double probability(float logit, const Row& row);

// Sums over places that count.
struct ClassMetrics {
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t counted = 0;

  // A place that counts.
  void add(const Row& row, std::span<const float> logits, std::int32_t target);
  void add(const ClassMetrics& other);
  double mean_loss() const { return counted == 0 ? 0 : loss / static_cast<double>(counted); }
  // The three floats; the mean loss and `extra`.
  void store(float* metrics, double extra = 0) const;
};

}  // namespace vdnn::cpu
