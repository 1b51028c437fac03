#pragma once
// Dropout, both passes: the mask is made again from its key (src/ops/dropout_mask.h), a thread two elements.

#include <cstdint>

#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/per_step.h"
#include "src/ops/dropout_mask.h"

namespace vdnn::cuda {

struct Dropout {
  static constexpr const char* kName = "dropout";
  const float* x = nullptr;
  float* y = nullptr;
  DropoutSpec spec;
  PerStep<StepScalars> step;
  float scale = 1;
  std::uint64_t sample_elements = 0;
  Divisor sample_pairs;
  std::uint64_t elements = 0;  // pairs, of all samples

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const StepScalars& scalars = step.get();
    const std::uint64_t sample = sample_pairs.quotient(i);
    const std::uint64_t pair = i - sample * sample_pairs.value();
    const auto [first, second] = ops::DropoutMask(spec, scalars, scalars.first_sample + sample).kept(pair);
    const std::uint64_t element = sample * sample_elements + 2 * pair;
    y[element] = first ? scale * x[element] : 0.0F;
    if (2 * pair + 1 < sample_elements) {
      y[element + 1] = second ? scale * x[element + 1] : 0.0F;
    }
  }
};

}  // namespace vdnn::cuda
