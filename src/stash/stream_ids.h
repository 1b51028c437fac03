#pragma once
// Streams of the program by their ids, which unlike handles are never another stream's.
//
// The ids of the streams that were used last are remembered, so that a put or a fetch asks the device for
// none. A remembered id may be that of a stream that is gone, where its handle is another's by now. Then
// is_there() reports both as gone, which is safe, and forgets it.

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
  // The backend must outlive it.
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

  // Whether the handle still is that stream's.
  bool is_there(StreamHandle stream, std::uint64_t id) {
    try {
      if (backend_.stream_id(stream) == id) {
        return true;
      }
    } catch (const InvalidArgument&) {
      // There is no such stream.
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
