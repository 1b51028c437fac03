#pragma once
// What an op is given when it runs.

#include <cstdint>
#include <span>

#include "vdnn/address_range.h"

namespace vdnn {

// Where an op's operands lie, in the order of Op::reads and Op::writes. A write that overwrites a read has
// the same range.
struct OpOperands {
  std::span<const AddressRange> reads;
  std::span<const AddressRange> writes;
  AddressRange workspace;
  // Where device memory has what OpProgram::write_step_numbers wrote of the step. 0: nowhere.
  std::uint64_t step_numbers = 0;
};

// What may change from step to step. Everything random in a step is a function of these: recomputed, or
// computed on another device, it comes out the same.
struct StepScalars {
  float learning_rate = 0;
  std::uint64_t step = 0;          // updates since the start of training, from 0
  std::uint64_t seed = 0;          // of dropout
  std::uint64_t first_sample = 0;  // where this batch begins in the step's samples, all devices together
  // Of the batches whose gradients are summed into one update: which this is. The last one updates.
  std::uint32_t micro_step = 0;
  std::uint32_t micro_steps = 1;

  bool updates() const { return micro_step + 1 == micro_steps; }
};

}  // namespace vdnn
