#pragma once
// Numbers of the step as a kernel's argument. They are passed by value. If steps are replayed as a graph,
// they are in device memory instead, since a graph's kernels have the same arguments in each replay.

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

template <class Numbers>
struct PerStep {
  Numbers value;
  const Numbers* memory = nullptr;  // device memory; null: use `value`

  VDNN_HOST_DEVICE const Numbers& get() const { return memory == nullptr ? value : *memory; }
};

}  // namespace vdnn::cuda
