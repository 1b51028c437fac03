#pragma once
// Checks for training on a GPU, a real one (gpu_zoo_test.cpp) or a fake one (gpu_training_test.cpp). A
// finding fails the calling test.

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

// Parameters after a step are those of `cpu` within `tolerance`, a fraction of the length of the step; the
// loss is that of `cpu` within a hundredth of the tolerance. Sums in another order may differ by as much.
void expect_the_step_of_cpu(const GpuCase& test, double tolerance);

// Four steps have the same losses and weights, to the bit, under every policy, in the smallest budget and in
// ten times that, and captured and replayed as graphs. The device commits the predicted bytes, and
// page-locked memory stays within the prediction. The second and third steps call neither allocator, and the
// card's free memory shrinks by at most the budget.
void expect_one_result_and_the_predicted_memory(const GpuCase& test);

// A budget of one granule less than the smallest is refused with an error that states the smallest. If the
// card itself has no more, the session reports it, nothing leaks, and a run that fits trains afterwards.
void expect_out_of_memory_to_be_told(const GpuCase& test);

}  // namespace vdnn::testing
