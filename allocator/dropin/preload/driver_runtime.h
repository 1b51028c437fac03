#pragma once
// The functions of CUDA's runtime that this library calls, implemented with the driver's functions. They are
// for programs with a runtime linked in (nvcc's default), in which there is no shared runtime to call. Error
// numbers and handle types are the same in the runtime and the driver. The driver has no current GPU, only
// contexts. So, as in the runtime, a GPU means its primary context, which is retained from the first use
// until the GPU is reset.

#include "allocator/dropin/preload/driver_table.h"

namespace vdnn::preload {

// Sets the driver for the whole process. Only the first call counts.
void set_driver(const DriverTable& driver);
// The driver that set_driver() has set; null before that call.
const DriverTable* driver();

// This file's implementation of the runtime's function `name`; null if it has none. The function can be
// called once there is a driver.
void* find_in_driver_runtime(const char* name);

// The context of the calling thread, or null.
CUcontext current_context();
// Sets `context` to the primary context of a GPU, which it retains at the first use.
CUresult primary_context(CUcontext& context, int ordinal);
// Whether `context` is the primary context of the GPU. Does not create a context on an unused GPU.
bool is_primary(CUcontext context, int ordinal);
// Call it before the GPU is reset.
void forget_primary_context(int ordinal);

}  // namespace vdnn::preload
