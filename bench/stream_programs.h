#pragma once
// Programs that use a stream pool on many streams, or on short-lived streams, over a backend that counts
// calls. A benchmark times these programs, and a test checks the counts.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/null_backend.h"
#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/stream_pool.h"

namespace vdnn::bench {

enum class Done { kAtOnce, kLate, kNever };

// A backend that counts its calls. Its streams are created and destroyed, and their handles are reused.
class CountingStreams final : public NullBackend {
 public:
  CountingStreams(std::size_t handles, Done done, bool of_thread)
      : NullBackend(std::uint64_t{256} << 30), ids_(handles), done_(done), of_thread_(of_thread) {}

  StreamHandle create(std::size_t handle) {
    ids_[handle] = ++created_;
    return stream_handle(static_cast<StreamId>(handle));
  }
  void destroy(StreamHandle stream) { ids_[index_of(stream)] = 0; }

  std::uint64_t stream_id(StreamHandle stream) override {
    ++calls_;
    const std::uint64_t id = ids_[index_of(stream)];
    if (id == 0) {
      throw InvalidArgument("no such stream");
    }
    return id;
  }
  bool is_of_thread(StreamHandle) const override { return of_thread_; }
  EventHandle record(StreamHandle) override {
    ++calls_;
    ++alive_;
    most_alive_ = std::max(most_alive_, alive_);
    return reinterpret_cast<EventHandle>(++recorded_);  // NOLINT(performance-no-int-to-ptr)
  }
  void wait(StreamHandle, EventHandle) override { ++calls_; }
  bool reached(EventHandle event) override {
    ++calls_;
    const std::uint64_t late = done_ == Done::kLate ? 100 : 0;
    return done_ != Done::kNever && reinterpret_cast<std::uintptr_t>(event) + late <= recorded_;
  }
  void synchronize(EventHandle) override { ++calls_; }
  void synchronize_all() override { ++calls_; }
  void release(EventHandle) noexcept override { --alive_; }

  std::uint64_t calls() const { return calls_; }
  std::uint64_t most_alive() const { return most_alive_; }

 private:
  static std::size_t index_of(StreamHandle stream) { return reinterpret_cast<std::uintptr_t>(stream) - 1; }

  std::vector<std::uint64_t> ids_;  // by handle; 0: no stream
  const Done done_;
  const bool of_thread_;
  std::uint64_t created_ = 0;
  std::uintptr_t recorded_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t alive_ = 0;
  std::uint64_t most_alive_ = 0;
};

struct Requests {
  std::string name;
  std::uint64_t bytes = 4096;
  bool is_told = true;          // whether the pool is told of the end of each stream
  Done done = Done::kAtOnce;    // when a recorded event is reached
  bool of_thread = false;       // PoolBackend::is_of_thread() of the streams
  std::size_t handles = 8;      // handles that are reused in turn
  std::size_t left_behind = 0;  // streams that ended earlier without notice, each with a block in use
};

class RequestLoop {
 public:
  explicit RequestLoop(const Requests& requests)
      : requests_(requests),
        backend_(requests.handles + requests.left_behind, requests.done, requests.of_thread) {
    for (std::size_t i = 0; i < requests.left_behind; ++i) {
      const StreamHandle stream = backend_.create(requests.handles + i);
      pool_.allocate(requests.bytes, stream);
      backend_.destroy(stream);
    }
  }

  // Returns the addresses of blocks in the order of requests.
  std::vector<std::uint64_t> run(std::uint64_t requests) {
    std::vector<std::uint64_t> addresses;
    for (std::uint64_t i = 0; i < requests; ++i) {
      request();
      addresses.push_back(blocks_.at((next_ - 1) % kAtOnce));
    }
    return addresses;
  }

  CountingStreams& backend() { return backend_; }
  StreamPoolStatistics statistics() const { return pool_.statistics(); }

 private:
  static constexpr std::size_t kAtOnce = 8;

  void request() {
    const std::size_t slot = next_ % kAtOnce;
    if (handles_.at(slot) != nullptr) {
      pool_.free(blocks_.at(slot));
      if (requests_.is_told) {
        pool_.forget(handles_.at(slot));
      }
      backend_.destroy(handles_.at(slot));
    }
    handles_.at(slot) = backend_.create(next_++ % requests_.handles);
    const std::uint64_t passing = pool_.allocate(2 * requests_.bytes, handles_.at(slot))->begin;
    blocks_.at(slot) = pool_.allocate(requests_.bytes, handles_.at(slot))->begin;
    pool_.free(passing);
  }

  const Requests requests_;
  CountingStreams backend_;
  StreamPool pool_{backend_, {}};
  std::array<StreamHandle, kAtOnce> handles_{};
  std::array<std::uint64_t, kAtOnce> blocks_{};
  std::uint64_t next_ = 0;
};

// Allocates and frees random blocks on streams that are never destroyed.
class ManyStreams {
 public:
  ManyStreams(StreamId streams, std::uint64_t most_bytes, Done done)
      : streams_(streams), most_bytes_(most_bytes), backend_(streams, done, false) {
    for (StreamId stream = 0; stream < streams; ++stream) {
      backend_.create(stream);
    }
  }

  std::vector<std::uint64_t> run(int calls) {
    std::vector<std::uint64_t> addresses;
    for (int i = 0; i < calls; ++i) {
      if (blocks_.size() < 1024 && random_.below(2) == 0) {
        const std::uint64_t bytes = 1 + random_.below(most_bytes_);
        const StreamHandle stream = stream_handle(static_cast<StreamId>(random_.below(streams_)));
        blocks_.push_back(pool_.allocate(bytes, stream)->begin);
        addresses.push_back(blocks_.back());
      } else if (!blocks_.empty()) {
        std::swap(blocks_[random_.below(blocks_.size())], blocks_.back());
        pool_.free(blocks_.back());
        blocks_.pop_back();
      }
    }
    return addresses;
  }
  CountingStreams& backend() { return backend_; }
  StreamPoolStatistics statistics() const { return pool_.statistics(); }

 private:
  const StreamId streams_;
  const std::uint64_t most_bytes_;
  SplitMix64 random_{1};
  CountingStreams backend_;
  StreamPool pool_{backend_, {}};
  std::vector<std::uint64_t> blocks_;
};

}  // namespace vdnn::bench
