#pragma once
// Code shared by losses over classes. Each place has a row of logits and a target. Sums run over pieces of
// places. A batch without spatial dimensions is one piece, for one thread, unless it is very large. The order
// of sums does not depend on the number of threads.

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/ops/standard_losses.h"
#include "vdnn/op_library.h"

namespace vdnn::cpu {

inline constexpr std::uint64_t kPlacesPerPiece = 4096;

// True if a place with this target counts for the loss.
inline bool counts(std::int32_t target) {
  return target >= 0;
}

// Returns the targets of all places of the batch. Throws InvalidArgument if a target is not a class.
std::span<const std::int32_t> checked_targets(const ops::ClassPlaces& problem, const OpOperands& operands);
double count_places(std::span<const std::int32_t> targets);

// Statistics of a row of logits.
struct Row {
  double log_sum = 0;       // log of the sum of exponentials
  std::size_t largest = 0;  // index of the largest logit, of the first one among equal logits

  explicit Row(std::span<const float> logits);
};
double probability(float logit, const Row& row);

// Sums over places that count.
struct ClassMetrics {
  double loss = 0;
  std::uint64_t correct = 0;
  std::uint64_t counted = 0;

  // Adds a place that counts.
  void add(const Row& row, std::span<const float> logits, std::int32_t target);
  void add(const ClassMetrics& other);
  double mean_loss() const { return counted == 0 ? 0 : loss / static_cast<double>(counted); }
  // Stores the three metrics of a loss, with `extra` added to the mean loss.
  void store(float* metrics, double extra = 0) const;
};

}  // namespace vdnn::cpu
