#include "src/ops/cpu/class_places.h"

#include <algorithm>
#include <cmath>

#include "src/ops/cpu/loops.h"

namespace vdnn::cpu {

// One thread checks all targets, since this pass is cheap compared with the exponentials of the logits.
std::span<const std::int32_t> checked_targets(const ops::ClassPlaces& problem, const OpOperands& operands) {
  const std::span targets(read_pointer<std::int32_t>(operands, 1), problem.samples * problem.places);
  ops::require_classes(problem, targets);
  return targets;
}

double count_places(std::span<const std::int32_t> targets) {
  return static_cast<double>(std::ranges::count_if(targets, counts));
}

Row::Row(std::span<const float> logits) {
  const auto maximum = std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - static_cast<double>(*maximum));
  }
  log_sum = static_cast<double>(*maximum) + std::log(sum);
  largest = static_cast<std::size_t>(maximum - logits.begin());
}

double probability(float logit, const Row& row) {
  return std::exp(static_cast<double>(logit) - row.log_sum);
}

void ClassMetrics::add(const Row& row, std::span<const float> logits, std::int32_t target) {
  const auto wanted = static_cast<std::size_t>(target);
  loss += row.log_sum - static_cast<double>(logits[wanted]);
  // If a logit is NaN, log_sum is not finite, and the index of the largest is arbitrary.
  correct += std::isfinite(row.log_sum) && row.largest == wanted ? 1 : 0;
  ++counted;
}

void ClassMetrics::add(const ClassMetrics& other) {
  loss += other.loss;
  correct += other.correct;
  counted += other.counted;
}

void ClassMetrics::store(float* metrics, double extra) const {
  metrics[0] = static_cast<float>(mean_loss() + extra);
  metrics[1] = static_cast<float>(correct);
  metrics[2] = static_cast<float>(counted);
}

}  // namespace vdnn::cpu
