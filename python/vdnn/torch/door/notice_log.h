#pragma once
// The destination of notices for the user.

#include <atomic>

namespace vdnn::door {

class NoticeLog {
 public:
  using Function = void (*)(const char* text);

  static void set(Function log) { log_ = log; }
  // Passes a notice to the function. The function may be Python's, and then takes Python's lock. So call
  // write() without any lock of this library.
  static void write(const char* text) {
    if (const Function log = log_) {
      log(text);
    }
  }

 private:
  static std::atomic<Function> log_;
};

}  // namespace vdnn::door
