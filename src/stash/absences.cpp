#include "src/stash/absences.h"

#include <algorithm>

namespace vdnn::stash {

namespace {

// By tensor: the event of its first read; where it is never read, the first event after its drop.
std::vector<std::size_t> ends_of_absence(const StepRecord& step) {
  std::vector<std::size_t> ends;
  for (const StepTensor& tensor : step.tensors) {
    ends.push_back(std::min(tensor.dropped_after, step.events.size()));
  }
  for (std::size_t i = step.events.size(); i-- > 0;) {
    if (step.events[i].kind == StepEvent::Kind::kRead) {
      ends[step.events[i].tensor] = i;
    }
  }
  return ends;
}

// By event, for a save: the first event at which its tensor has been released. A later save is released
// later, so one pass over the events finds all.
std::vector<std::size_t> releases_of(const StepRecord& step, std::uint64_t flight_bytes) {
  const auto saved_at = [&step](std::size_t event) {
    const bool is_save = step.events[event].kind == StepEvent::Kind::kSave;
    return is_save ? step.tensors[step.events[event].tensor].bytes : 0;
  };
  std::vector<std::size_t> releases;
  std::size_t end = 0;
  std::uint64_t saved = 0;  // at the events from this one to `end`
  for (std::size_t event = 0; event < step.events.size(); ++event) {
    while (saved <= flight_bytes && end < step.events.size()) {
      saved += saved_at(end++);
    }
    releases.push_back(end);
    saved -= saved_at(event);
  }
  return releases;
}

}  // namespace

std::vector<Absence> absences_of(const StepRecord& step, std::uint64_t flight_bytes) {
  const std::vector<std::size_t> ends = ends_of_absence(step);
  const std::vector<std::size_t> releases = releases_of(step, flight_bytes);
  std::vector<Absence> all;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const std::uint32_t tensor = step.events[i].tensor;
    if (step.events[i].kind == StepEvent::Kind::kRead || step.tensors[tensor].stays) {
      continue;
    }
    const std::size_t begin = std::max(releases[i], step.tensors[tensor].held_until);
    if (begin < ends[tensor]) {
      all.push_back(
          {.tensor = tensor, .bytes = step.tensors[tensor].bytes, .begin = begin, .end = ends[tensor]});
    }
  }
  return all;
}

}  // namespace vdnn::stash
