#pragma once
// The captures that the program has begun through hooked functions. During a capture, nothing may wait for a
// whole GPU. CUDA reports whether a given stream is captured, but lists no captures. So this class lists the
// captured streams and asks CUDA about each: a capture may also end because its stream is destroyed, or
// through a function that is not hooked.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace vdnn::preload {

// A stream of a GPU as one thread names it.
struct NamedStream {
  cudaStream_t handle = nullptr;
  int ordinal = -1;
  std::thread::id thread = std::this_thread::get_id();

  // Whether the handle means a different stream on each thread and GPU.
  bool is_of_thread() const { return handle == cudaStreamPerThread; }
  bool is(const NamedStream& other) const {
    return handle == other.handle &&
           (!is_of_thread() || (thread == other.thread && ordinal == other.ordinal));
  }
};

// Thread-safe.
class Captures {
 public:
  // Adds a capture that is about to begin. any() counts it from now on. Returns the capture's number. Throws
  // std::bad_alloc.
  std::uint64_t begin(const NamedStream& stream);
  // Records whether the attempt to begin the capture has succeeded.
  void has_begun(std::uint64_t capture, bool begun);
  // The number of the capture that was begun last.
  std::uint64_t last() const;
  // Removes the capture of a stream after the stream or the capture has ended. Keeps captures with numbers
  // above `last`: they belong to another stream, which has received the same handle since.
  void end(const NamedStream& stream, std::uint64_t last);
  // Removes the oldest capture of the GPU `ordinal` and returns the stream on which the capture was begun;
  // empty if there is none.
  std::optional<NamedStream> take(int ordinal);

  // Whether any capture is in progress. `is_captured(stream)` asks CUDA about a stream whose capture has
  // begun; the function must not call this object.
  template <class Ask>
  bool any(const Ask& is_captured) {
    if (count_ == 0) {
      return false;
    }
    return remove_if([&](const Capture& each) { return each.begun && !is_captured(each.stream); }) != 0;
  }

 private:
  struct Capture {
    std::uint64_t number = 0;
    NamedStream stream;
    bool begun = false;
  };

  // Returns how many captures are left.
  template <class Predicate>
  std::size_t remove_if(const Predicate& is_gone) {
    const std::lock_guard lock(mutex_);
    std::erase_if(captures_, is_gone);
    count_ = captures_.size();
    return count_;
  }

  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Capture> captures_;
  std::uint64_t last_ = 0;
};

}  // namespace vdnn::preload
