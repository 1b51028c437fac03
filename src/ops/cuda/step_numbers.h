#pragma once
// The numbers of a step that kernels read. When steps are replayed as graphs, the numbers are in device
// memory. Numbers that are derived from StepScalars in double precision are always computed on the host, so
// that bits are the same with and without graphs.

#include <type_traits>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cuda/kernels/per_step.h"
#include "vdnn/op_library.h"

namespace vdnn::cuda {

struct StepNumbers {
  StepScalars scalars;
  ops::AdamCoefficients adam;  // for tapes with that optimizer
};
static_assert(sizeof(StepNumbers) <= kStepNumbersBytes);
static_assert(std::is_trivially_copyable_v<StepNumbers>);

// Returns a part of the numbers as an argument of kernels of an op with `operands`. `value`: the part in this
// step.
template <class Numbers>
PerStep<Numbers> per_step(const OpOperands& operands, Numbers StepNumbers::*part, const Numbers& value) {
  return {.value = value,
          .memory = operands.step_numbers == 0
                        ? nullptr
                        : &(pointer_to<const StepNumbers>(operands.step_numbers)->*part)};
}

}  // namespace vdnn::cuda
