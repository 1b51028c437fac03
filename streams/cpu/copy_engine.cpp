#include "streams/cpu/copy_engine.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "vdnn/device.h"

namespace vdnn {

void CopyEngine::transfer(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes) const {
  const auto begin = std::chrono::steady_clock::now();
  if (bytes != 0) {
    std::memcpy(pointer_to<void>(destination), pointer_to<void>(source), bytes);
  }
  if (bytes_per_second_) {
    const std::chrono::duration<double> on_the_link(static_cast<double>(bytes) / *bytes_per_second_);
    // Rounded up, so that a copy is never faster than the link.
    std::this_thread::sleep_until(begin + std::chrono::ceil<std::chrono::nanoseconds>(on_the_link));
  }
}

}  // namespace vdnn
