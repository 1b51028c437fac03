#pragma once
// The numbers of a step that kernels read. When steps are replayed as graphs, the numbers are in device
// memory. With and without graphs, the host computes the numbers that are derived from StepScalars in double
// precision, so that the bits are the same.

#include <type_traits>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cuda/kernels/per_step.h"
#include "vdnn/op_library.h"

namespace vdnn::cuda {

struct StepNumbers {
  StepScalars scalars;
  ops::AdamCoefficients adam;  // for tapes with optimizer Adam
};
static_assert(sizeof(StepNumbers) <= kStepNumbersBytes);
static_assert(std::is_trivially_copyable_v<StepNumbers>);

// Returns the member `part` of the numbers as a kernel argument, for an op with these operands. `value` is
// the member's value in this step.
template <class Numbers>
PerStep<Numbers> per_step(const OpOperands& operands, Numbers StepNumbers::*part, const Numbers& value) {
  return {.value = value,
          .memory = operands.step_numbers == 0
                        ? nullptr
                        : &(pointer_to<const StepNumbers>(operands.step_numbers)->*part)};
}

}  // namespace vdnn::cuda
