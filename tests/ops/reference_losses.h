#pragma once
// Losses in double precision; see reference.h. Targets are in the order (N, space).

#include <cstdint>
#include <vector>

#include "tests/ops/reference.h"

namespace vdnn::reference {

struct Loss {
  double mean = 0;
  double correct = 0;
  double counted = 0;
  Array probabilities;  // of losses over classes
};

// Logits N x K x space.
Loss softmax_cross_entropy(const Array& logits, const std::vector<std::int32_t>& targets);
Array softmax_cross_entropy_backward(const Array& logits, const std::vector<std::int32_t>& targets,
                                     double weight = 1);

// The coefficient of one sample and class, over the places that count. Its weight in the mean over samples
// and classes is zero if no place of the sample counts, and equal for all other samples.
struct DiceCoefficient {
  double numerator = 0;
  double denominator = 0;
  double weight = 0;
};
std::vector<DiceCoefficient> soft_dice(const Array& probabilities, const std::vector<std::int32_t>& targets,
                                       double smooth);
Loss dice_cross_entropy(const Array& logits, const std::vector<std::int32_t>& targets, double smooth);
Array dice_cross_entropy_backward(const Array& logits, const std::vector<std::int32_t>& targets,
                                  double smooth, double weight = 1);

Loss mean_squared_error(const Array& prediction, const Array& targets);
Array mean_squared_error_backward(const Array& prediction, const Array& targets, double weight = 1);

}  // namespace vdnn::reference
