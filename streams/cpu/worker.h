#pragma once
// A thread that runs tasks in the order in which they were enqueued.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace vdnn {

class Worker {
 public:
  using Task = std::function<void()>;

  // Debuggers show the first 15 characters of `name`. Throws std::system_error if the thread cannot be
  // started.
  explicit Worker(const std::string& name);
  // Calls finish().
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `task` must not throw. Do not call enqueue() after finish().
  void enqueue(Task task);
  // Runs all queued tasks, then ends the thread. Further calls do nothing.
  void finish();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool finishing_ = false;
  std::thread thread_;
};

}  // namespace vdnn
