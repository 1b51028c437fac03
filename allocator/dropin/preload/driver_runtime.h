#pragma once
// The functions of CUDA's runtime that this library calls, made of the driver's functions. They serve
// programs with a runtime linked in, as nvcc does by default: there the driver is the next library. Error
// numbers and types of handles are the same in both. Contexts are not: as in the runtime, a GPU means its
// primary context, which is retained at the first use until the GPU is reset.

#include "allocator/dropin/preload/driver_table.h"

namespace vdnn::preload {

// Sets the driver for the whole process. Only the first call counts.
void set_driver(const DriverTable& driver);
// Null before set_driver().
const DriverTable* driver();

// The runtime's function `name`, or null if this library does not call it. Valid once there is a driver.
void* find_in_driver_runtime(const char* name);

// The context of the calling thread, or null.
CUcontext current_context();
// The primary context of a GPU, which is retained.
CUresult primary_context(CUcontext& context, int ordinal);
// Whether `context` is the primary context of the GPU. Does not create one for an unused GPU.
bool is_primary(CUcontext context, int ordinal);
// To be called before the GPU is reset.
void forget_primary_context(int ordinal);

}  // namespace vdnn::preload
