#pragma once
// The captures that the program has begun by the functions that are hooked. While there is one, no GPU may be
// waited for as a whole. CUDA tells of a stream whether it is captured, and lists none. So the streams are
// listed here, and CUDA is asked about each: a capture may also end by a function that is not hooked, or with
// its stream.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace vdnn::preload {

// A stream of that GPU as one thread names it.
struct NamedStream {
  cudaStream_t handle = nullptr;
  int ordinal = -1;
  std::thread::id thread = std::this_thread::get_id();

  // Each thread and GPU has one of its own by this name.
  bool is_of_thread() const { return handle == cudaStreamPerThread; }
  bool is(const NamedStream& other) const {
    return handle == other.handle &&
           (!is_of_thread() || (thread == other.thread && ordinal == other.ordinal));
  }
};

// Thread-safe.
class Captures {
 public:
  // One is about to begin, and counts. Returns what names it. Throws std::bad_alloc.
  std::uint64_t begin(const NamedStream& stream);
  // Whether it has begun after all.
  void has_begun(std::uint64_t capture, bool begun);
  // The number of the one that was begun last.
  std::uint64_t last() const;
  // The stream's capture has ended, or the stream has. It need not have one. A capture after `last` is of
  // another stream, which has got the handle since.
  void end(const NamedStream& stream, std::uint64_t last);
  // Forgets the oldest one of that GPU and returns where it was begun; nothing: there is none.
  std::optional<NamedStream> take(int ordinal);

  // Whether there is any. `is_captured(stream)` asks CUDA about a stream whose capture has begun; it must not
  // come back here.
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

  // Returns how many are left.
  template <class Predicate>
  std::size_t remove_if(const Predicate& is_gone) {
    const std::lock_guard lock(mutex_);
    std::erase_if(captures_, is_gone);
    count_ = captures_.size();
    return count_;
  }

  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Capture> captures_;
  std::uint64_t last_ = 0;
};

}  // namespace vdnn::preload
