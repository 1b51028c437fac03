#pragma once
// A thread that runs what it is given, in that order.

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

  // `name` is what debuggers show (its first 15 characters). Throws std::system_error without a thread.
  explicit Worker(const std::string& name);
  // Finishes.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // `task` must not throw. Not after finish().
  void enqueue(Task task);
  // Runs what is queued, then ends the thread. May be called again.
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
