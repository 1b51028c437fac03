#pragma once
// A program in C that uses all of vdnn/allocator.h, compiled as C11.

#include "vdnn/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns a text about the first broken promise of the header, or null. `allocator` is empty before and
// after; `stream` and `other` are two of its streams.
const char* run_c_program(vdnn_allocator* allocator, void* stream, void* other);

#ifdef __cplusplus
}
#endif
