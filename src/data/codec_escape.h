#pragma once
// How errors leave libjpeg and libpng: C libraries that report an error by calling a function which must not
// return, and through whose frames no exception may pass. That function jumps back to here.

#include <array>
#include <csetjmp>
#include <cstdio>

namespace vdnn {

// Part of a decoder's state, which its error function finds by way of the library.
struct CodecEscape {
  std::jmp_buf place;
  std::array<char, 256> message;

  // For the error function, below take_step().
  [[noreturn]] void leave(const char* why) {
    std::snprintf(message.data(), message.size(), "%s", why);
    std::longjmp(place, 1);
  }
};

// Calls `step`; false: it left by `codec.escape`, which has the message. No destructor runs on that way, so
// that a step must hold nothing that has one, must not throw, and keeps its state in `codec`. Not inlined, so
// that no variable of a caller is lost in a register by the jump.
template <typename Codec>
[[gnu::noinline]] bool take_step(Codec& codec, void (*step)(Codec&) noexcept) {
  if (setjmp(codec.escape.place) != 0) {
    return false;
  }
  step(codec);
  return true;
}

}  // namespace vdnn
