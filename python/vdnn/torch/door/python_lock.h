#pragma once
// A lock of a mutex whose owners may wait for Python's lock (the GIL).
//
// Under a mutex of this library, PyTorch may take Python's lock: to count the references of a storage's
// Python object, to destroy a storage, or to record the Python stack of an allocation. A thread with Python's
// lock may enter this library at any time: in a custom autograd.Function, or when garbage collection destroys
// a graph. So a thread with Python's lock never waits for the mutex: it releases Python's lock while it
// waits.

#include <mutex>

namespace vdnn::door {

class PythonFriendlyLock {
 public:
  explicit PythonFriendlyLock(std::mutex& mutex);

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace vdnn::door
