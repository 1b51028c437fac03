#pragma once
// The submissions of one stream, as a Device orders them.

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "vdnn/frontier.h"

namespace vdnn {

class GraphRecording;

// Only the thread that submits to the stream changes its timeline, and only with the device's lock held. So
// that thread may read the timeline without the lock; other threads need the lock.
struct Timeline {
  // The number of ends that are kept. Ends show which points of a wait can be dropped, since another point of
  // the same wait implies them. An older end would be needed only if the implying point had been followed by
  // at least kRemembered submissions to its stream, which is rare.
  static constexpr std::size_t kRemembered = 16;

  std::string name;
  Frontier known;  // the next work is ordered after it; own submissions included
  // For each of the latest submissions, by count: the frontier that the submission's end is ordered after,
  // including its own point.
  std::array<Frontier, kRemembered> ends;
  GraphRecording* recording = nullptr;  // the recording that contains the stream; null: none

  // The end of the submission `own`; null if it is not remembered.
  const Frontier* end_of(Point own) const {
    const Frontier& found = ends[own.count % kRemembered];
    return found.count(own.stream) == own.count ? &found : nullptr;
  }
  void remember(Point own, Frontier end) noexcept { ends[own.count % kRemembered] = std::move(end); }
};

}  // namespace vdnn
