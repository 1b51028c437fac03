#pragma once
// The functions of CUDA's driver that programs are given in place of its own.

#include <cuda.h>

#include <cstdint>
#include <string_view>

namespace vdnn::preload {

// Who asks. What others allocate is the driver's, but what they give back, or end, may be the program's.
enum class Asker : std::uint8_t { kServed, kOther };

// What cuGetProcAddress() gives for `name` of that version, or null: the driver's own, which is `next`.
// `per_thread`: for programs to which stream 0 is the calling thread's.
void* find_driver_hook(Asker asker, std::string_view name, int version, bool per_thread, void* next);
// What the driver's library exports as `symbol`, or null.
void* find_driver_hook(Asker asker, std::string_view symbol, void* next);
// Whether there is one for anybody.
bool is_hooked(std::string_view symbol);

}  // namespace vdnn::preload
