#include "src/stash/step_borders.h"

#include <algorithm>
#include <utility>

namespace vdnn::stash {

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  constexpr int kHalf = 32;
  hash = (hash ^ value) * kPrime;
  return hash ^ (hash >> kHalf);
}

// A hash of the events from `event` to the end. For a read, the hash includes how many tensors ago the tensor
// was saved, so equal periods have equal hashes wherever they begin.
std::uint64_t course_since(const StepRecord& step, std::size_t tensors, std::size_t event) {
  std::uint64_t hash = 0;
  for (; event < step.events.size(); ++event) {
    const std::uint32_t index = step.events[event].tensor;
    if (step.events[event].kind == StepEvent::Kind::kSave) {
      const StepTensor& tensor = step.tensors[index];
      hash = mix(mix(mix(hash, 1), tensor.bytes), tensor.signature);
      ++tensors;
    } else {
      hash = mix(mix(hash, 2), tensors - index);
    }
  }
  return hash;
}

}  // namespace

std::optional<StepBorders::Period> StepBorders::note_turn(const StepUnderWay& step) {
  const Turn before = turns_.empty() ? Turn{} : turns_.back();
  turns_.push_back({.tensors = step.record().tensors.size(),
                    .events = step.record().events.size(),
                    .live = step.live(),
                    .course = course_since(step.record(), before.tensors, before.events)});
  const std::size_t most = std::min(turns_.size() / periods_, kMostTurns);
  for (std::size_t turns = 1; turns <= most; ++turns) {
    if (repeats_with(turns)) {
      const Turn& begin = turns_[turns_.size() - 1 - turns];
      return Period{.first_tensor = begin.tensors, .first_event = begin.events};
    }
  }
  return std::nullopt;
}

bool StepBorders::repeats_with(std::size_t turns) const {
  const std::size_t last = turns_.size() - 1;
  for (std::size_t i = last; i > last - (periods_ - 1) * turns; --i) {
    if (turns_[i].course != turns_[i - turns].course) {
      return false;
    }
  }
  for (std::size_t i = last; i > last - (periods_ - 1) * turns; i -= turns) {
    if (turns_[i].live < turns_[i - turns].live) {
      return false;  // the step ends by itself
    }
  }
  const auto period = turns_.end() - static_cast<std::ptrdiff_t>(turns);
  return std::ranges::min_element(period, turns_.end(), {}, &Turn::live)->live == turns_[last].live;
}

bool StepBorders::note_empty() {
  const std::size_t borders = std::exchange(borders_, 0);
  if (borders == 0 || borders >= kFewBorders) {
    return false;
  }
  periods_ = 2 * (periods_ + borders);
  return true;
}

}  // namespace vdnn::stash
