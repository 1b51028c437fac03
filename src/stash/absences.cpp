#include "src/stash/absences.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace vdnn::stash {

namespace {

// For each tensor, the stretches in which nobody needs it. A tensor's first stretch ends at its first read
// or, if the tensor is never read, at its drop. It begins at the start of the step, because absences_of()
// later removes the part in which the tensor has not left yet.
std::vector<std::vector<Stretch>> unneeded(const StepRecord& step) {
  std::vector<std::vector<Stretch>> stretches(step.tensors.size());
  // By tensor: where its next stretch begins; absent within a pass.
  std::vector<std::optional<std::size_t>> begins(step.tensors.size(), 0);
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const StepEvent& event = step.events[i];
    if (event.kind == StepEvent::Kind::kRead) {
      std::optional<std::size_t>& begin = begins[event.tensor];
      if (begin && *begin < i) {
        stretches[event.tensor].push_back({.begin = *begin, .end = i});
      }
      begin = event.ends_pass ? std::optional(i + 2) : std::nullopt;
    }
  }
  for (std::size_t tensor = 0; tensor < step.tensors.size(); ++tensor) {
    if (begins[tensor] == std::size_t{0}) {
      const std::size_t end = std::min(step.tensors[tensor].dropped_after, step.events.size());
      stretches[tensor].push_back({.begin = 0, .end = end});
    }
  }
  return stretches;
}

// Clips the stretches to the events from `begin` on.
std::vector<Stretch> since(std::size_t begin, std::vector<Stretch> stretches) {
  std::erase_if(stretches, [begin](const Stretch& each) { return each.end <= begin; });
  if (!stretches.empty()) {
    stretches.front().begin = std::max(stretches.front().begin, begin);
  }
  return stretches;
}

// By event: for a save, the first event at which the copied tensor's memory has been released; unused for
// reads. A tensor that is saved later is released no earlier, so one pass over the events finds all releases.
std::vector<std::size_t> releases_of(const StepRecord& step, std::uint64_t flight_bytes) {
  const auto saved_at = [&step](std::size_t event) {
    const bool is_save = step.events[event].kind == StepEvent::Kind::kSave;
    return is_save ? step.tensors[step.events[event].tensor].bytes : 0;
  };
  std::vector<std::size_t> releases;
  std::size_t end = 0;
  std::uint64_t saved = 0;  // bytes saved at the events [event, end)
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
  std::vector<std::vector<Stretch>> stretches = unneeded(step);
  const std::vector<std::size_t> releases = releases_of(step, flight_bytes);
  std::vector<Absence> all;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const std::uint32_t tensor = step.events[i].tensor;
    if (step.events[i].kind == StepEvent::Kind::kRead || step.tensors[tensor].stays) {
      continue;
    }
    const std::size_t begin = std::max(releases[i], step.tensors[tensor].held_until);
    std::vector<Stretch> away = since(begin, std::move(stretches[tensor]));
    if (!away.empty()) {
      all.push_back({.tensor = tensor, .bytes = step.tensors[tensor].bytes, .stretches = std::move(away)});
    }
  }
  return all;
}

}  // namespace vdnn::stash
