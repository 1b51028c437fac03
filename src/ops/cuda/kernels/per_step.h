#pragma once
// Numbers of the step as a kernel's argument. They are passed by value or, for steps that are replayed as a
// graph, in device memory: arguments of a graph's kernels are the same in each replay.

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

template <class Numbers>
struct PerStep {
  Numbers value;
  const Numbers* memory = nullptr;  // device memory; null: use `value`

  VDNN_HOST_DEVICE const Numbers& get() const { return memory == nullptr ? value : *memory; }
};

}  // namespace vdnn::cuda
