#pragma once
// What kernels take from StepScalars, as it lies in memory where steps are replayed as graphs. What follows
// from them in double precision is computed on the host either way, so that the bits are the same.

#include <type_traits>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cuda/kernels/per_step.h"
#include "vdnn/op_library.h"

namespace vdnn::cuda {

struct StepNumbers {
  StepScalars scalars;
  ops::AdamCoefficients adam;  // of a tape whose optimizer that is
};
static_assert(sizeof(StepNumbers) <= kStepNumbersBytes);
static_assert(std::is_trivially_copyable_v<StepNumbers>);

// As the kernels of an op that is given `operands` get a part of the numbers, which is `value` in this step.
template <class Numbers>
PerStep<Numbers> per_step(const OpOperands& operands, Numbers StepNumbers::*part, const Numbers& value) {
  return {.value = value,
          .memory = operands.step_numbers == 0
                        ? nullptr
                        : &(pointer_to<const StepNumbers>(operands.step_numbers)->*part)};
}

}  // namespace vdnn::cuda
