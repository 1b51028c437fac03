#pragma once
// Error handling for libjpeg and libpng. These C libraries report an error by calling an error function that
// must not return. No exception may pass through the libraries' frames. So the error function jumps back to
// take_step() by longjmp().

#include <array>
#include <csetjmp>
#include <cstdio>

namespace vdnn {

// A part of a decoder's state. The decoder's error function finds it through the library's user pointer.
struct CodecEscape {
  std::jmp_buf place;
  std::array<char, 256> message;

  // Call it from the decoder's error function, and only during take_step().
  [[noreturn]] void leave(const char* why) {
    std::snprintf(message.data(), message.size(), "%s", why);
    std::longjmp(place, 1);
  }
};

// Calls `step`. Returns false if the step has called codec.escape.leave(); `codec.escape` then has the
// message. The jump runs no destructors, so a step must not have objects with destructors and must not throw.
// It must keep its state in `codec`. The function is not inlined, since the jump would lose variables of the
// caller that are in registers.
template <typename Codec>
[[gnu::noinline]] bool take_step(Codec& codec, void (*step)(Codec&) noexcept) {
  if (setjmp(codec.escape.place) != 0) {
    return false;
  }
  step(codec);
  return true;
}

}  // namespace vdnn
