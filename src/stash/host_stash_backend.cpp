// The host as a device, with the calling thread as its compute stream. The thread has done its work when an
// event is recorded, so the event is complete at once. A wait of that stream blocks the thread.

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "streams/cpu/progress.h"
#include "streams/cpu/worker.h"
#include "streams/host_memory.h"
#include "streams/pinned_blocks.h"
#include "vdnn/stash_backend.h"

namespace vdnn {

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t nanoseconds_since(Clock::time_point begin) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
}

// A thread that copies in order, and its progress.
class CopyStream {
 public:
  CopyStream(const std::string& name, std::optional<std::uint64_t> delay_seed) : worker_(name) {
    if (delay_seed) {
      delays_.emplace(*delay_seed);
    }
  }

  template <class Task>
  std::uint64_t enqueue(Task task) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = given_ + 1;
    worker_.enqueue([this, count, task = std::move(task)] {
      task();
      progress_.reach(count);
    });
    given_ = count;
    return count;
  }
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    if (bytes > kMostBytesOfCaller || delays_ || !copy_at_once(to, from, bytes)) {
      enqueue([this, to, from, bytes] {
        delay();
        make_copy(to, from, bytes);
      });
    }
  }
  std::uint64_t given() const {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  Progress& progress() { return progress_; }
  std::uint64_t copy_nanoseconds() const { return copy_nanoseconds_; }

 private:
  // Up to this many bytes, a copy on the calling thread is faster than waking the worker.
  static constexpr std::uint64_t kMostBytesOfCaller = std::uint64_t{16} << 10;

  // Copies on the calling thread. If earlier submissions are not complete, copies nothing and returns false.
  bool copy_at_once(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!progress_.reached(given_)) {
      return false;
    }
    make_copy(to, from, bytes);
    progress_.reach(++given_);
    return true;
  }
  void make_copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    const Clock::time_point begin = Clock::now();
    std::memcpy(pointer_to<void>(to), pointer_to<void>(from), bytes);
    copy_nanoseconds_ += nanoseconds_since(begin);
  }
  // Only the worker calls this.
  void delay() {
    constexpr int kMostMicroseconds = 1000;
    if (delays_) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(std::uniform_int_distribution<int>(0, kMostMicroseconds)(*delays_)));
    }
  }

  mutable std::mutex mutex_;  // held while a submission gets its count and its place in the queue
  std::uint64_t given_ = 0;
  Progress progress_;
  std::atomic<std::uint64_t> copy_nanoseconds_{0};
  std::optional<std::mt19937_64> delays_;
  Worker worker_;  // destroyed first: its tasks use the other members
};

// A point in a stream. If the stream is null, the point is in a caller's thread, which has already done all
// its work.
struct HostEvent {
  CopyStream* stream = nullptr;
  std::uint64_t count = 0;
};

class HostStashBackend final : public StashBackend {
 public:
  explicit HostStashBackend(std::optional<std::uint64_t> delay_seed)
      : blocks_("cpu", host_memory_bytes(), Mapping::Kind::kTouched),
        offload_("vdnn offload", delay_seed),
        prefetch_("vdnn prefetch", delay_seed ? std::optional(*delay_seed + 1) : std::nullopt) {}

  std::string name() const override { return "cpu"; }
  // The handles are addresses of members, so they differ from all handles of the caller's streams.
  StreamHandle offload_stream() const override { return const_cast<CopyStream*>(&offload_); }
  StreamHandle prefetch_stream() const override { return const_cast<CopyStream*>(&prefetch_); }

  // All streams of the caller count as one stream, the calling thread.
  std::uint64_t stream_id(StreamHandle) override { return 0; }
  bool is_capturing(StreamHandle) override { return false; }
  EventHandle record(StreamHandle stream) override {
    const std::uintptr_t which = stream == &offload_ ? kOffload : stream == &prefetch_ ? kPrefetch : kCaller;
    const std::uint64_t count = which == kCaller ? 0 : stream_of(which)->given();
    const std::uint64_t event = (count << kStreamBits) | which;
    return reinterpret_cast<EventHandle>(event);  // NOLINT(performance-no-int-to-ptr)
  }
  void wait(StreamHandle stream, EventHandle event) override {
    const HostEvent awaited = named(event);
    if (awaited.stream == nullptr || awaited.stream->progress().reached(awaited.count)) {
      return;
    }
    if (CopyStream* const own = own_stream(stream)) {
      own->enqueue([awaited] { awaited.stream->progress().wait_for(awaited.count); });
    } else {
      wait_here(awaited);
    }
  }
  void synchronize(EventHandle event) override {
    const HostEvent awaited = named(event);
    if (awaited.stream != nullptr) {
      wait_here(awaited);
    }
  }
  void release(EventHandle) noexcept override {}
  void synchronize_copies() override {
    for (CopyStream* const stream : {&offload_, &prefetch_}) {
      stream->progress().wait_for(stream->given());
    }
  }

  AddressRange allocate_host(std::uint64_t bytes) override { return blocks_.take(bytes); }
  void free_host(AddressRange block) override {
    blocks_.check(block);
    blocks_.give_back(block);
  }

  void copy_out(AddressRange block, AddressRange source, const StashIdentity&) override {
    offload_.copy(block.begin, source.begin, source.bytes);
  }
  void copy_in(AddressRange target, AddressRange block, const StashIdentity&) override {
    prefetch_.copy(target.begin, block.begin, target.bytes);
  }

  Times times() noexcept override {
    return {.copy_nanoseconds = offload_.copy_nanoseconds() + prefetch_.copy_nanoseconds(),
            .wait_nanoseconds = wait_nanoseconds_};
  }

 private:
  // An event's handle encodes its count and its stream, so events need no memory.
  static constexpr unsigned kStreamBits = 2;
  static constexpr std::uintptr_t kCaller = 0;
  static constexpr std::uintptr_t kOffload = 1;
  static constexpr std::uintptr_t kPrefetch = 2;

  CopyStream* stream_of(std::uintptr_t which) {
    return which == kCaller ? nullptr : which == kOffload ? &offload_ : &prefetch_;
  }
  HostEvent named(EventHandle event) {
    const auto bits = reinterpret_cast<std::uintptr_t>(event);
    return {.stream = stream_of(bits & ((std::uintptr_t{1} << kStreamBits) - 1)),
            .count = bits >> kStreamBits};
  }
  CopyStream* own_stream(StreamHandle stream) {
    for (CopyStream* const own : {&offload_, &prefetch_}) {
      if (stream == own) {
        return own;
      }
    }
    return nullptr;
  }
  void wait_here(const HostEvent& awaited) {
    const Clock::time_point begin = Clock::now();
    awaited.stream->progress().wait_for(awaited.count);
    wait_nanoseconds_ += nanoseconds_since(begin);
  }

  PinnedBlocks blocks_;
  std::atomic<std::uint64_t> wait_nanoseconds_{0};
  CopyStream offload_;
  CopyStream prefetch_;  // destroyed first, since it waits for offload_
};

}  // namespace

std::unique_ptr<StashBackend> make_host_stash_backend(std::optional<std::uint64_t> delay_seed) {
  return std::make_unique<HostStashBackend>(delay_seed);
}

}  // namespace vdnn
