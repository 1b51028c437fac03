#pragma once
// How what stands for a kernel gets to run: at once, in its turn on a stream of a fake runtime, or not at
// all.

#include <functional>

namespace vdnn::testing {

using HostLaunch = std::function<void(void* stream, std::function<void()> kernel)>;

inline void run_at_once(void*, const std::function<void()>& kernel) {
  kernel();
}

inline void run_never(void*, const std::function<void()>&) {}

}  // namespace vdnn::testing
