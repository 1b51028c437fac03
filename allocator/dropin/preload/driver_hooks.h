#pragma once
// Functions that programs call in place of functions of CUDA's driver.

#include <cuda.h>

#include <cstdint>
#include <string_view>

namespace vdnn::preload {

// The caller that looks a function up. kServed: the pools serve its allocations. kOther: it allocates from
// the driver, but it may free memory or destroy streams of the program.
enum class Asker : std::uint8_t { kServed, kOther };

// The function that cuGetProcAddress() returns for `name` and `version`; null if the caller is to use the
// driver's own, `next`. `per_thread`: for programs in which stream 0 is the calling thread's default stream.
void* find_driver_hook(Asker asker, std::string_view name, int version, bool per_thread, void* next);
// The function that dlsym() returns for `symbol` of the driver's library; null if the caller is to use the
// driver's own, `next`.
void* find_driver_hook(Asker asker, std::string_view symbol, void* next);
// Whether the symbol has a hook for any caller.
bool is_hooked(std::string_view symbol);

}  // namespace vdnn::preload
