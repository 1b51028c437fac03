#pragma once
// The submissions of one stream, as a Device orders them.

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "vdnn/frontier.h"

namespace vdnn {

class GraphRecording;

// Only the thread that submits to the stream changes it, and only with the device's lock held. So that thread
// reads it without the lock, and other threads read it with the lock.
struct Timeline {
  // The number of ends that are kept. Waits seldom name older points beside later ones that imply them.
  static constexpr std::size_t kRemembered = 16;

  std::string name;
  Frontier known;  // the next work is ordered after it; own submissions included
  // By count, for each of the latest submissions: the frontier that its end is ordered after, itself
  // included.
  std::array<Frontier, kRemembered> ends;
  GraphRecording* recording = nullptr;  // the one that contains the stream; null: none

  // Null if it is not remembered.
  const Frontier* end_of(Point own) const {
    const Frontier& found = ends[own.count % kRemembered];
    return found.count(own.stream) == own.count ? &found : nullptr;
  }
  void remember(Point own, Frontier end) noexcept { ends[own.count % kRemembered] = std::move(end); }
};

}  // namespace vdnn
