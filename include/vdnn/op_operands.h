#pragma once
// The arguments of an op when it runs: memory, and the numbers of the step.

#include <cstdint>
#include <span>

#include "vdnn/address_range.h"

namespace vdnn {

// Addresses of an op's operands, in the order of Op::reads and Op::writes. A write that overwrites a read has
// the same range.
struct OpOperands {
  std::span<const AddressRange> reads;
  std::span<const AddressRange> writes;
  AddressRange workspace;
  // Device address of the bytes that OpProgram::write_step_numbers() wrote for the step; 0: the op uses
  // StepScalars.
  std::uint64_t step_numbers = 0;
};

// The numbers that change from step to step. Everything random in a step is a function of them, so that a
// recomputation, or another device, has the same result.
struct StepScalars {
  float learning_rate = 0;
  std::uint64_t step = 0;          // updates since the start of training, from 0
  std::uint64_t seed = 0;          // of dropout
  std::uint64_t first_sample = 0;  // of this batch, counted over the step's samples on all devices
  std::uint32_t micro_step = 0;    // index of this micro-batch in the step; the last one updates
  std::uint32_t micro_steps = 1;   // number of micro-batches in the step

  bool updates() const { return micro_step + 1 == micro_steps; }
};

}  // namespace vdnn
