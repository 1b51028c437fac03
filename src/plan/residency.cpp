#include "src/plan/residency.h"

#include <algorithm>

#include "src/plan/placement.h"

namespace vdnn {

namespace {

// The residences, with `holdings` still empty.
std::vector<Residence> bare_residences(const Schedule& schedule) {
  std::vector<Residence> result;
  for (BufferId id = 0; id < schedule.buffers.size(); ++id) {
    const Buffer& buffer = schedule.buffers[id];
    if (buffer.persistent && buffer.space == Space::kDevice) {
      result.push_back(
          {.buffer = id, .end = static_cast<std::uint32_t>(schedule.instructions.size()), .holdings = {}});
    }
  }
  for (const Lifetime& life : lifetimes(schedule)) {
    result.push_back({.buffer = life.buffer, .begin = life.begin, .end = life.end, .holdings = {}});
  }
  return result;
}

void note_use(std::vector<Holding>& holdings, ValueId value, std::uint32_t when) {
  // Searches backwards, since the instruction most likely uses the latest value in the buffer.
  const auto known = std::find_if(holdings.rbegin(), holdings.rend(),
                                  [&](const Holding& holding) { return holding.value == value; });
  if (known != holdings.rend()) {
    known->last = when;
  } else {
    holdings.push_back({.value = value, .first = when, .last = when});
  }
}

}  // namespace

ValueId Residence::value_at(std::uint32_t instruction) const {
  if (holdings.empty()) {
    return kNone;
  }
  const auto later = std::ranges::upper_bound(holdings, instruction, {}, &Holding::first);
  return later == holdings.begin() ? later->value : (later - 1)->value;
}

std::vector<Residence> residences(const Tape& tape, const Schedule& schedule) {
  std::vector<Residence> result = bare_residences(schedule);
  std::vector<Residence*> of_buffer(schedule.buffers.size(), nullptr);
  for (Residence& residence : result) {
    of_buffer[residence.buffer] = &residence;
  }
  for (std::uint32_t when = 0; when < schedule.instructions.size(); ++when) {
    for (const BufferUse& use : uses(tape, schedule.instructions[when])) {
      if (Residence* residence = of_buffer[use.buffer]; residence != nullptr) {
        note_use(residence->holdings, use.value, when);
      }
    }
  }
  return result;
}

std::vector<std::uint64_t> bytes_in_use(const Schedule& schedule) {
  const std::size_t count = schedule.instructions.size();
  std::vector<std::uint64_t> gained(count + 1, 0);
  std::vector<std::uint64_t> lost(count + 1, 0);
  for (const Residence& residence : bare_residences(schedule)) {
    gained[residence.begin] += schedule.buffers[residence.buffer].bytes;
    lost[residence.end] += schedule.buffers[residence.buffer].bytes;
  }
  std::vector<std::uint64_t> result;
  std::uint64_t live = 0;
  for (std::size_t when = 0; when < count; ++when) {
    live = live + gained[when] - lost[when];
    result.push_back(live);
  }
  return result;
}

std::uint64_t most_bytes_in_use(const Schedule& schedule) {
  const std::vector<std::uint64_t> in_use = bytes_in_use(schedule);
  return in_use.empty() ? 0 : std::ranges::max(in_use);
}

std::uint32_t fullest_launch(const Schedule& schedule, const std::vector<std::uint64_t>& bytes_in_use) {
  const auto most = std::ranges::max_element(bytes_in_use) - bytes_in_use.begin();
  for (auto when = static_cast<std::uint32_t>(most); when < schedule.instructions.size(); ++when) {
    if (is_launch(schedule.instructions[when].kind)) {
      return when;
    }
  }
  return kNone;
}

}  // namespace vdnn
