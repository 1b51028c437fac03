#pragma once
// What of a step's numbers a kernel takes: by value, or where a step that is replayed as a graph has put
// them, since what a graph's kernels take by value is the same each time.

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

template <class Numbers>
struct PerStep {
  Numbers value;
  const Numbers* memory = nullptr;  // of the device; null: `value` it is

  VDNN_HOST_DEVICE const Numbers& get() const { return memory == nullptr ? value : *memory; }
};

}  // namespace vdnn::cuda
