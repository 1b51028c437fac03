#include "tests/crash/system_calls.h"

#include <fcntl.h>
#include <sys/types.h>

#include <csignal>
#include <cstdarg>

namespace vdnn::testing {

namespace {

struct State {
  std::uint64_t fatal_call = 0;
  std::uint64_t fatal_write = 0;
  std::uint64_t calls = 0;
  std::uint64_t writes = 0;
  bool recording = false;
  std::vector<std::string> recorded;
};

// Belongs to the one thread that saves.
State& state() {
  static State state;
  return state;
}

void pass(const char* name) {
  if (++state().calls == state().fatal_call) {
    ::raise(SIGKILL);
  }
  if (state().recording) {
    state().recorded.emplace_back(name);
  }
}

}  // namespace

void die_before_call(std::uint64_t number) {
  state() = {.fatal_call = number};
}

void die_within_write(std::uint64_t number) {
  state() = {.fatal_write = number};
}

void record_calls() {
  state() = {.recording = true};
}

const std::vector<std::string>& recorded_calls() {
  return state().recorded;
}

}  // namespace vdnn::testing

// The linker's names.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

int __real_openat(int directory, const char* path, int flags, ...);
int __real_flock(int file, int operation);
int __real_fchmod(int file, mode_t mode);
ssize_t __real_write(int file, const void* bytes, size_t count);
int __real_fsync(int file);
int __real_close(int file);
int __real_renameat(int from_directory, const char* from, int to_directory, const char* to);
int __real_unlinkat(int directory, const char* path, int flags);

int __wrap_openat(int directory, const char* path, int flags, ...) {
  vdnn::testing::pass("openat");
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    std::va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  return __real_openat(directory, path, flags, mode);
}

int __wrap_flock(int file, int operation) {
  vdnn::testing::pass("flock");
  return __real_flock(file, operation);
}

int __wrap_fchmod(int file, mode_t mode) {
  vdnn::testing::pass("fchmod");
  return __real_fchmod(file, mode);
}

ssize_t __wrap_write(int file, const void* bytes, size_t count) {
  vdnn::testing::pass("write");
  if (++vdnn::testing::state().writes == vdnn::testing::state().fatal_write) {
    if (__real_write(file, bytes, count / 2) >= 0) {
      ::raise(SIGKILL);
    }
  }
  return __real_write(file, bytes, count);
}

int __wrap_fsync(int file) {
  vdnn::testing::pass("fsync");
  return __real_fsync(file);
}

int __wrap_close(int file) {
  vdnn::testing::pass("close");
  return __real_close(file);
}

int __wrap_renameat(int from_directory, const char* from, int to_directory, const char* to) {
  vdnn::testing::pass("renameat");
  return __real_renameat(from_directory, from, to_directory, to);
}

int __wrap_unlinkat(int directory, const char* path, int flags) {
  vdnn::testing::pass("unlinkat");
  return __real_unlinkat(directory, path, flags);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
