#pragma once
// What has to hold for training on a GPU, whether it is there (gpu_zoo_test.cpp) or not
// (gpu_training_test.cpp). Findings are failures of the test that calls.

#include <memory>

#include "vdnn/gpu_system.h"
#include "vdnn/planned_run.h"

namespace vdnn::testing {

// Of one network at one size. The batch is the same at each step.
struct GpuCase {
  ModelOptions model;
  std::shared_ptr<GpuSystem> gpus;  // trains on cuda:0
  bool tf32 = false;                // there
  DataType storage = DataType::kF32;
};

// Parameters after a step are those of `cpu` but for `tolerance`, of the length of the step; so is the loss,
// but for a hundredth of it. Whatever is summed in another order may differ by as much.
void expect_the_step_of_cpu(const GpuCase& test, double tolerance);

// Four steps have the same losses and weights, to the bit, under every policy, in the smallest budget and in
// ten times that, and captured and replayed as graphs; the device commits what was predicted, page-locked
// memory is no more than was predicted, the second step and the third reach neither allocator, and the card
// has lost no more than the budget meanwhile.
void expect_one_result_and_the_predicted_memory(const GpuCase& test);

// A budget of a granule less than the smallest is refused with the smallest; where the card itself has no
// more, a session says so, nothing is lost, and what fits trains afterwards.
void expect_out_of_memory_to_be_told(const GpuCase& test);

}  // namespace vdnn::testing
