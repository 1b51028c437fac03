#pragma once
// A step as a stash has learned it: the tensors that were saved, and when each was saved and read.

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
  // The first event, by index, at which nobody else held it; 0: nobody was seen to hold it.
  std::size_t held_until = 0;
  // How many events there were when its last handle was dropped; until then, more than any step has.
  std::size_t dropped_after = std::numeric_limits<std::size_t>::max();
};

// The caller's tensors at an event, as though nothing had left the device.
struct BytesInUse {
  std::uint64_t most = 0;  // since the event before, where the caller tells that; else as at this one
  std::uint64_t at_event = 0;
};

struct StepEvent {
  enum class Kind : std::uint8_t { kSave, kRead };
  Kind kind = Kind::kSave;
  std::uint32_t tensor = 0;  // numbered in the order of their saves
  // Of a read: the last one of a pass over the graph. A tensor that has come back is let go of after it.
  bool ends_pass = false;
  // See BytesInUse: `most`, and `at_event`.
  std::uint64_t in_use_bytes = 0;
  std::uint64_t at_event_bytes = 0;
  std::uint64_t nanoseconds = 0;  // since the step began
};

struct StepRecord {
  std::vector<StepTensor> tensors;
  std::vector<StepEvent> events;
  std::uint64_t nanoseconds = 0;  // from the end of the step before, or from its first save, to its end
};

inline bool is_same_tensor(const StepTensor& a, const StepTensor& b) {
  return a.bytes == b.bytes && a.signature == b.signature;
}
// The same tensors, saved and read in the same order.
bool is_same_course(const StepRecord& a, const StepRecord& b);
// Of tensors that begin both steps: `to` learns who was seen to hold them in `from`.
void inherit_holders(const std::vector<StepTensor>& from, std::vector<StepTensor>& to);
// Of its two largest tensors.
std::uint64_t two_largest_bytes(const StepRecord& step);

// After docs/learned_step.schema.json. The stash does not know the program and its framework: whoever does
// replaces their names.
std::string to_json(const StepRecord& step, const std::string& device);

}  // namespace vdnn::stash
