#pragma once
// The functions of CUDA's driver that programs are given in place of its own.

#include <cuda.h>

#include <cstdint>
#include <string_view>

namespace vdnn::preload {

// Who asks. What others allocate is the driver's, but what they give back, or end, may be the program's.
enum class Asker : std::uint8_t { kServed, kOther };

// The function that cuGetProcAddress() returns for `name` and `version`. Null: the driver's own, `next`.
// `per_thread`: for programs to which stream 0 is the calling thread's.
void* find_driver_hook(Asker asker, std::string_view name, int version, bool per_thread, void* next);
// The function that dlsym() returns for `symbol` of the driver's library. Null: the driver's own, `next`.
void* find_driver_hook(Asker asker, std::string_view symbol, void* next);
// Whether the symbol has a hook for any asker.
bool is_hooked(std::string_view symbol);

}  // namespace vdnn::preload
