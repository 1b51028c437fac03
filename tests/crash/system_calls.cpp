#include "tests/crash/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>

namespace vdnn::testing {

namespace {

struct State {
  std::uint64_t fatal_call = 0;
  std::uint64_t fatal_write = 0;
  std::uint64_t failing_call = 0;
  int error = 0;
  std::uint64_t calls = 0;
  std::uint64_t writes = 0;
  bool disturbing = false;
  bool interrupted = false;  // the previous call
  bool disguising = false;
  bool recording = false;
  std::vector<std::string> recorded;
};

// Call it only from the one thread that saves.
State& state() {
  static State state;
  return state;
}

// Returns whether to make the call. If it returns false, errno is set.
bool pass(const char* name) {
  if (++state().calls == state().fatal_call) {
    ::raise(SIGKILL);
  }
  if (state().recording) {
    state().recorded.emplace_back(name);
  }
  if (state().calls == state().failing_call) {
    errno = state().error;
    return false;
  }
  return true;
}

// Like pass(), for a call that its caller repeats after a signal.
bool pass_interruptible(const char* name) {
  State& now = state();
  now.interrupted = now.disturbing && !now.interrupted;
  if (now.interrupted) {
    errno = EINTR;
    return false;
  }
  return pass(name);
}

// The bytes that a read or write of `count` bytes moves.
size_t moved(size_t count) {
  return state().disturbing ? count - count / 2 : count;
}

mode_t mode_of(int flags, std::va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

void die_before_call(std::uint64_t number) {
  state() = {.fatal_call = number};
}

void die_within_write(std::uint64_t number) {
  state() = {.fatal_write = number};
}

void fail_call(std::uint64_t number, int error) {
  state() = {.failing_call = number, .error = error};
}

std::uint64_t calls_made() {
  return state().calls;
}

void disturb_calls() {
  state() = {.disturbing = true, .recording = true};
}

void disguise_names() {
  state() = {.disguising = true};
}

void record_calls() {
  state() = {.recording = true};
}

const std::vector<std::string>& recorded_calls() {
  return state().recorded;
}

}  // namespace vdnn::testing

// These names are the linker's.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

int __real_open(const char* path, int flags, ...);
int __real_openat(int directory, const char* path, int flags, ...);
DIR* __real_opendir(const char* path);
struct dirent* __real_readdir(DIR* directory);
int __real_fstat(int file, struct stat* status);
int __real_fstatat(int directory, const char* path, struct stat* status, int flags);
int __real_fcntl(int file, int command, ...);
ssize_t __real_pread(int file, void* bytes, size_t count, off_t position);
int __real_flock(int file, int operation);
int __real_fchmod(int file, mode_t mode);
ssize_t __real_write(int file, const void* bytes, size_t count);
int __real_fsync(int file);
int __real_close(int file);
int __real_renameat(int from_directory, const char* from, int to_directory, const char* to);
int __real_unlinkat(int directory, const char* path, int flags);

int __wrap_open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = vdnn::testing::mode_of(flags, arguments);
  va_end(arguments);
  return vdnn::testing::pass("open") ? __real_open(path, flags, mode) : -1;
}

int __wrap_openat(int directory, const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = vdnn::testing::mode_of(flags, arguments);
  va_end(arguments);
  return vdnn::testing::pass("openat") ? __real_openat(directory, path, flags, mode) : -1;
}

int __wrap_fstat(int file, struct stat* status) {
  return vdnn::testing::pass("fstat") ? __real_fstat(file, status) : -1;
}

int __wrap_fstatat(int directory, const char* path, struct stat* status, int flags) {
  if (!vdnn::testing::pass("fstatat")) {
    return -1;
  }
  const int result = __real_fstatat(directory, path, status, flags);
  status->st_ino += vdnn::testing::state().disguising ? 1 : 0;
  return result;
}

// Supports only the commands with a number or no argument.
int __wrap_fcntl(int file, int command, ...) {
  std::va_list arguments;
  va_start(arguments, command);
  const int argument = va_arg(arguments, int);
  va_end(arguments);
  return vdnn::testing::pass("fcntl") ? __real_fcntl(file, command, argument) : -1;
}

DIR* __wrap_opendir(const char* path) {
  return vdnn::testing::pass("opendir") ? __real_opendir(path) : nullptr;
}

struct dirent* __wrap_readdir(DIR* directory) {
  return vdnn::testing::pass("readdir") ? __real_readdir(directory) : nullptr;
}

ssize_t __wrap_pread(int file, void* bytes, size_t count, off_t position) {
  return vdnn::testing::pass_interruptible("pread")
             ? __real_pread(file, bytes, vdnn::testing::moved(count), position)
             : -1;
}

int __wrap_flock(int file, int operation) {
  return vdnn::testing::pass_interruptible("flock") ? __real_flock(file, operation) : -1;
}

int __wrap_fchmod(int file, mode_t mode) {
  return vdnn::testing::pass("fchmod") ? __real_fchmod(file, mode) : -1;
}

ssize_t __wrap_write(int file, const void* bytes, size_t count) {
  if (!vdnn::testing::pass_interruptible("write")) {
    return -1;
  }
  if (++vdnn::testing::state().writes == vdnn::testing::state().fatal_write) {
    if (__real_write(file, bytes, count / 2) >= 0) {
      ::raise(SIGKILL);
    }
  }
  return __real_write(file, bytes, vdnn::testing::moved(count));
}

int __wrap_fsync(int file) {
  return vdnn::testing::pass_interruptible("fsync") ? __real_fsync(file) : -1;
}

int __wrap_close(int file) {
  const bool passed = vdnn::testing::pass("close");
  const int error = errno;
  const int result = __real_close(file);
  errno = passed ? errno : error;
  return passed ? result : -1;
}

int __wrap_renameat(int from_directory, const char* from, int to_directory, const char* to) {
  return vdnn::testing::pass("renameat") ? __real_renameat(from_directory, from, to_directory, to) : -1;
}

int __wrap_unlinkat(int directory, const char* path, int flags) {
  return vdnn::testing::pass("unlinkat") ? __real_unlinkat(directory, path, flags) : -1;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
