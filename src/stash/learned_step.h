#pragma once
// What a stash knows of a step: the tensors that were saved, and when each was saved and read.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vdnn::stash {

struct StepTensor {
  std::uint64_t bytes = 0;
  std::uint64_t signature = 0;
  // Others held it while it could have been away: moving it would have freed no memory.
  bool stays = false;
  // The first event, by index, at which nobody else was seen to hold it; 0: nobody was seen at all.
  std::size_t held_until = 0;
  // How many events there were when its last handle was dropped; until then, more than any step has.
  std::size_t dropped_after = std::numeric_limits<std::size_t>::max();
};

struct StepEvent {
  enum class Kind : std::uint8_t { kSave, kRead };
  Kind kind = Kind::kSave;
  std::uint32_t tensor = 0;  // numbered in the order of their saves
  // What the caller's tensors take, as though nothing had left the device.
  std::uint64_t in_use_bytes = 0;
  std::uint64_t nanoseconds = 0;  // since the first event
};

struct StepRecord {
  std::vector<StepTensor> tensors;
  std::vector<StepEvent> events;
};

inline bool is_same_tensor(const StepTensor& a, const StepTensor& b) {
  return a.bytes == b.bytes && a.signature == b.signature;
}
// The same tensors, saved and read in the same order.
bool is_same_course(const StepRecord& a, const StepRecord& b);
// Of its two largest tensors.
std::uint64_t two_largest_bytes(const StepRecord& step);

// After docs/learned_step.schema.json. The stash does not know the program and its framework: whoever does
// replaces their names.
std::string to_json(const StepRecord& step, const std::string& device);

}  // namespace vdnn::stash
