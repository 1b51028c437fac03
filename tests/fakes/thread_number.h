#pragma once
// A name for a thread that no other thread has, while it runs or later. A std::thread::id is given again once
// its thread has ended, so state that is kept by it passes to a thread that never asked for it.

#include <cstdint>

namespace vdnn {

// Of the calling thread; at least 1.
std::uint64_t thread_number();

}  // namespace vdnn
