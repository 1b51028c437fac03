#include "python_lock.h"

// Functions of Python's C API. They are weak, since this library is not linked with Python.
extern "C" {
[[gnu::weak]] int PyGILState_Check();
[[gnu::weak]] void* PyEval_SaveThread();
[[gnu::weak]] void PyEval_RestoreThread(void* state);
}

namespace vdnn::door {
namespace {

// Releases Python's lock, if this thread has it, until the end of the scope.
class WithoutPython {
 public:
  WithoutPython()
      : state_(PyGILState_Check != nullptr && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~WithoutPython() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  void* state_;
};

}  // namespace

PythonFriendlyLock::PythonFriendlyLock(std::mutex& mutex) : lock_(mutex, std::try_to_lock) {
  while (!lock_) {
    {
      const WithoutPython released;
      const std::lock_guard wait(mutex);
    }
    static_cast<void>(lock_.try_lock());
  }
}

}  // namespace vdnn::door
