#pragma once
// The program's streams by id. Unlike handles, ids are never reused.
//
// The ids of recently used streams are remembered, so that most puts and fetches need not ask the device. A
// remembered id may be outdated: its stream was destroyed, and the handle is another stream's by now. Then
// is_there() reports both as gone, which is safe, and forgets the id.

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

  // Whether the handle still is that of the stream `id`.
  bool is_there(StreamHandle stream, std::uint64_t id) {
    try {
      if (backend_.stream_id(stream) == id) {
        return true;
      }
    } catch (const InvalidArgument&) {
      // The device knows no such stream.
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
