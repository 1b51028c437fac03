#pragma once
// How the replacement of a kernel runs: at once, in its turn on a stream of a fake runtime, or never.

#include <functional>

namespace vdnn::testing {

using HostLaunch = std::function<void(void* stream, std::function<void()> kernel)>;

inline void run_at_once(void*, const std::function<void()>& kernel) {
  kernel();
}

inline void run_never(void*, const std::function<void()>&) {}

}  // namespace vdnn::testing
