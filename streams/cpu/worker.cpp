#include "streams/cpu/worker.h"

#include <pthread.h>

#include <utility>

namespace vdnn {

Worker::Worker(const std::string& name) : thread_([this] { run(); }) {
  constexpr std::size_t kLongestName = 15;  // of a thread on Linux
  pthread_setname_np(thread_.native_handle(), name.substr(0, kLongestName).c_str());
}

Worker::~Worker() {
  finish();
}

void Worker::enqueue(Task task) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Worker::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
    // Destroys the task without the lock: the task also ran without it.
    task = nullptr;
    lock.lock();
  }
}

}  // namespace vdnn
