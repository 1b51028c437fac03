#pragma once
// A number that no other thread has, now or later. A std::thread::id is reused once its thread has ended, so
// another thread would inherit state stored under it.

#include <cstdint>

namespace vdnn {

// The calling thread's number; at least 1.
std::uint64_t thread_number();

}  // namespace vdnn
