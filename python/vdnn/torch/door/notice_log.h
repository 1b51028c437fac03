#pragma once
// Where notices for the user go.

#include <atomic>

namespace vdnn::door {

class NoticeLog {
 public:
  using Function = void (*)(const char* text);

  static void set(Function log) { log_ = log; }
  // The function may be Python's, whose lock it takes: no lock of ours may be held.
  static void write(const char* text) {
    if (const Function log = log_) {
      log(text);
    }
  }

 private:
  static std::atomic<Function> log_;
};

}  // namespace vdnn::door
