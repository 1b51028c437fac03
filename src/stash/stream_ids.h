#pragma once
// The ids of the program's streams. Unlike handles, ids are never reused.
//
// The ids of recently used streams are cached, so that most puts and fetches need not query the device. A
// cached id is outdated if its stream was destroyed and another stream now has the handle. Then is_there()
// returns false for both streams, which is safe, and removes the id from the cache.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/stash_backend.h"

namespace vdnn::stash {

// Not synchronised.
class StreamIds {
 public:
  // The backend must outlive this object.
  explicit StreamIds(StashBackend& backend) : backend_(backend) {}

  std::uint64_t id_of(StreamHandle stream) {
    const auto found = std::ranges::find(known_, stream, &Known::stream);
    if (found != known_.end()) {
      return found->id;
    }
    const Known asked{.stream = stream, .id = backend_.stream_id(stream)};
    if (known_.size() == kMostKnown) {
      known_.erase(known_.begin());
    }
    known_.push_back(asked);
    return asked.id;
  }

  // Whether the handle still refers to the stream with this id.
  bool is_there(StreamHandle stream, std::uint64_t id) {
    try {
      if (backend_.stream_id(stream) == id) {
        return true;
      }
    } catch (const InvalidArgument&) {
      // The device has no such stream.
    }
    std::erase_if(known_, [stream](const Known& known) { return known.stream == stream; });
    return false;
  }

 private:
  struct Known {
    StreamHandle stream = nullptr;
    std::uint64_t id = 0;
  };
  static constexpr std::size_t kMostKnown = 16;

  StashBackend& backend_;
  std::vector<Known> known_;  // the oldest first
};

}  // namespace vdnn::stash
