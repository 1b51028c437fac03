#pragma once
// Devices with a mistake. A stash over such a device behaves like a stash with that mistake, which tests must
// notice.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <utility>

#include "tests/stash/forwarding_stash_backend.h"

namespace vdnn::testing {

enum class StreamRole : std::uint8_t { kProgram, kOffload, kPrefetch };

struct DroppedWait {
  const char* name;
  StreamRole waiter;
  StreamRole awaited;
  // The wait matters only if sources are released with the put. Otherwise the program's stream waits for the
  // copy out before the tensor is away, and the fetch waits for that stream.
  bool needs_release_at_put = false;
  // Drops only the second and later waits since the waiter's last copy. For a tensor that leaves later, the
  // first wait is for the stream on which it leaves.
  bool but_the_first = false;
};
inline std::ostream& operator<<(std::ostream& out, const DroppedWait& wait) {
  return out << wait.name;
}

inline constexpr DroppedWait kDroppedWaits[] = {
    {"CopyOutDoesNotWaitForTheSource", StreamRole::kOffload, StreamRole::kProgram},
    {"SourceIsReleasedBeforeItsCopy", StreamRole::kProgram, StreamRole::kOffload},
    {"FetchDoesNotWaitForTheTarget", StreamRole::kPrefetch, StreamRole::kProgram},
    {"FetchIgnoresItsOwnCopyOut", StreamRole::kPrefetch, StreamRole::kOffload, true},
    {"ReaderDoesNotWaitForTheFetch", StreamRole::kProgram, StreamRole::kPrefetch},
    {"CopyOutIgnoresTheBlocksLastFetch", StreamRole::kOffload, StreamRole::kPrefetch},
    {"LeavingIgnoresTheProducer", StreamRole::kOffload, StreamRole::kProgram, false, true}};

// Drops every wait between streams of these roles.
class WithoutWait final : public ForwardingStashBackend {
 public:
  WithoutWait(std::unique_ptr<StashBackend> target, const DroppedWait& dropped)
      : ForwardingStashBackend(std::move(target)), dropped_(dropped) {}

  EventHandle record(StreamHandle stream) override {
    const EventHandle event = ForwardingStashBackend::record(stream);
    const std::lock_guard lock(mutex_);
    recorded_[event] = role_of(stream);
    return event;
  }
  void wait(StreamHandle stream, EventHandle event) override {
    if (role_of(stream) != dropped_.waiter || role_when_recorded(event) != dropped_.awaited || is_kept()) {
      ForwardingStashBackend::wait(stream, event);
    }
  }
  void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) override {
    waits_before_copy_ = 0;
    ForwardingStashBackend::copy_out(block, source, contents);
  }

 private:
  StreamRole role_of(StreamHandle stream) const {
    return stream == offload_stream()    ? StreamRole::kOffload
           : stream == prefetch_stream() ? StreamRole::kPrefetch
                                         : StreamRole::kProgram;
  }
  StreamRole role_when_recorded(EventHandle event) {
    const std::lock_guard lock(mutex_);
    return recorded_.at(event);
  }

  bool is_kept() { return dropped_.but_the_first && waits_before_copy_++ == 0; }

  const DroppedWait dropped_;
  std::atomic<int> waits_before_copy_{0};  // waits between these roles since the last copy out
  std::mutex mutex_;
  std::map<EventHandle, StreamRole> recorded_;
};

}  // namespace vdnn::testing
