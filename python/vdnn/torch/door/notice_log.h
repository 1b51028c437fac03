#pragma once
// The destination of notices for the user.

#include <atomic>

namespace vdnn::door {

class NoticeLog {
 public:
  using Function = void (*)(const char* text);

  static void set(Function log) { log_ = log; }
  // The function may be a Python function, which takes Python's lock. So the caller must hold none of our
  // locks.
  static void write(const char* text) {
    if (const Function log = log_) {
      log(text);
    }
  }

 private:
  static std::atomic<Function> log_;
};

}  // namespace vdnn::door
