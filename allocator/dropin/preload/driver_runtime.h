#pragma once
// CUDA's runtime, as far as it is called here, made of the driver's functions: what is behind us in programs
// that hold a runtime of their own inside, as nvcc links them by default. Numbers of errors and kinds of
// handles are the same in both, contexts are not: here, too, a GPU is its primary context, which is kept once
// it is asked for, until the GPU is reset.

#include "allocator/dropin/preload/driver_table.h"

namespace vdnn::preload {

// From now on, for the whole process; of several the first.
void set_driver(const DriverTable& driver);
// Null before that.
const DriverTable* driver();

// The runtime's function `name` where it is called here, or null. Valid once there is a driver.
void* find_in_driver_runtime(const char* name);

// The context of the calling thread; null: none.
CUcontext current_context();
// The primary context of a GPU, which begins to use it.
CUresult primary_context(CUcontext& context, int ordinal);
// Whether it is that; a GPU that nobody uses has none, and gets none.
bool is_primary(CUcontext context, int ordinal);
// Before it is reset.
void forget_primary_context(int ordinal);

}  // namespace vdnn::preload
