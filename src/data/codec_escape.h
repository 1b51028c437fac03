#pragma once
// Error handling for libjpeg and libpng. These C libraries report an error by calling a function that must
// not return, and no exception may pass through their frames. So that function jumps back to take_step().

#include <array>
#include <csetjmp>
#include <cstdio>

namespace vdnn {

// Part of a decoder's state; the decoder's error function reaches it through the library's user pointer.
struct CodecEscape {
  std::jmp_buf place;
  std::array<char, 256> message;

  // The decoder's error function calls this, inside take_step() only.
  [[noreturn]] void leave(const char* why) {
    std::snprintf(message.data(), message.size(), "%s", why);
    std::longjmp(place, 1);
  }
};

// Calls `step`. Returns false if the step left through `codec.escape`, which then has the message. The jump
// runs no destructors, so a step must have no objects with destructors, must not throw, and keeps its state
// in `codec`. Not inlined, so that the jump does not lose a caller's variable that is in a register.
template <typename Codec>
[[gnu::noinline]] bool take_step(Codec& codec, void (*step)(Codec&) noexcept) {
  if (setjmp(codec.escape.place) != 0) {
    return false;
  }
  step(codec);
  return true;
}

}  // namespace vdnn
