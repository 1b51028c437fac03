#pragma once
// Numbers of the step as a kernel's argument: by value, or in device memory for steps that are replayed as a
// graph, since arguments of a graph's kernels are the same in each replay.

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

template <class Numbers>
struct PerStep {
  Numbers value;
  const Numbers* memory = nullptr;  // of the device; null: `value` is used

  VDNN_HOST_DEVICE const Numbers& get() const { return memory == nullptr ? value : *memory; }
};

}  // namespace vdnn::cuda
