// If preloaded into a program, this library makes open() fail for reading the file $VDNN_TEST_UNREADABLE.
// Permissions would not make it fail, because tests in containers run as root.

#include <dlfcn.h>
#include <fcntl.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

bool is_unreadable(const char* path, int flags) {
  const char* unreadable = std::getenv("VDNN_TEST_UNREADABLE");
  return unreadable != nullptr && std::strcmp(path, unreadable) == 0 && (flags & O_ACCMODE) == O_RDONLY;
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  if (is_unreadable(path, flags)) {
    errno = EIO;
    return -1;
  }
  using Open = int (*)(const char*, int, ...);
  static const auto next = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"));
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return next(path, flags, mode);
}
