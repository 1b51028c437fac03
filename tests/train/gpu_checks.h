#pragma once
// Checks for training on a GPU, a real one (gpu_zoo_test.cpp) or a fake one (gpu_training_test.cpp). A
// finding fails the calling test.

#include <memory>

#include "vdnn/gpu_system.h"
#include "vdnn/planned_run.h"

namespace vdnn::testing {

// One network at one size. The batch is the same at each step.
struct GpuCase {
  ModelOptions model;
  std::shared_ptr<GpuSystem> gpus;  // trains on cuda:0
  bool tf32 = false;                // of the GPU's run
  DataType storage = DataType::kF32;
};

// Parameters after a step differ from those of `cpu` by at most `tolerance`, as a fraction of the length of
// the step. The loss differs by at most a hundredth of that. Sums in another order may differ by as much.
void expect_the_step_of_cpu(const GpuCase& test, double tolerance);

// Four steps have the same losses and weights, to the bit, under every policy, with and without graphs. The
// budgets are the smallest one and ten times that. The device commits the predicted bytes, and page-locked
// memory stays within the prediction. The second and third steps call neither the device's nor the host's
// allocator. The card's free memory shrinks by at most the budget.
void expect_one_result_and_the_predicted_memory(const GpuCase& test);

// A budget of one granule less than the smallest is refused with an error that states the smallest. If the
// card itself lacks memory, the session reports that, nothing leaks, and a run that fits can train
// afterwards.
void expect_out_of_memory_to_be_told(const GpuCase& test);

}  // namespace vdnn::testing
