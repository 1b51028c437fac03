#include "python_lock.h"

// Functions of Python's C API. They are weak, since this library is not linked with Python.
extern "C" {
[[gnu::weak]] int Py_IsInitialized();
[[gnu::weak]] int PyGILState_Check();
[[gnu::weak]] void* PyEval_SaveThread();
[[gnu::weak]] void PyEval_RestoreThread(void* state);
}

namespace vdnn::door {
namespace {

// PyGILState_Check() alone also answers 1 once Python has ended.
bool has_pythons_lock() {
  return Py_IsInitialized != nullptr && Py_IsInitialized() != 0 && PyGILState_Check() != 0;
}

// Releases Python's lock until the end of the scope. This thread must have it.
class WithoutPython {
 public:
  WithoutPython() : state_(PyEval_SaveThread()) {}
  ~WithoutPython() { PyEval_RestoreThread(state_); }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  void* state_;
};

}  // namespace

PythonFriendlyLock::PythonFriendlyLock(std::mutex& mutex) : lock_(mutex, std::try_to_lock) {
  while (!lock_) {
    if (!has_pythons_lock()) {
      lock_.lock();
      return;
    }
    {
      const WithoutPython released;
      const std::lock_guard wait(mutex);
    }
    static_cast<void>(lock_.try_lock());
  }
}

}  // namespace vdnn::door
