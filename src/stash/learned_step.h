#pragma once
// A step as a stash has learned it: the saved tensors, and when each was saved and read.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vdnn::stash {

struct StepTensor {
  std::uint64_t bytes = 0;
  std::uint64_t signature = 0;
  // Something other than the graph held the tensor while it could have been away, so offloading it would have
  // freed no memory.
  bool stays = false;
  // The index of the first event at which only the graph held the tensor; 0 if nobody else was seen to hold
  // it.
  std::size_t held_until = 0;
  // The number of events when the tensor's last handle was dropped; the maximum if it has not been dropped.
  std::size_t dropped_after = std::numeric_limits<std::size_t>::max();
};

// Bytes of the caller's tensors at an event, counted as if no tensor had left the device.
struct BytesInUse {
  std::uint64_t most = 0;  // the peak since the previous event if the caller reports it, else `at_event`
  std::uint64_t at_event = 0;
};

struct StepEvent {
  enum class Kind : std::uint8_t { kSave, kRead };
  Kind kind = Kind::kSave;
  std::uint32_t tensor = 0;  // numbered in the order of their saves
  // Marks the last read of a pass over the graph. A fetched copy is released after that read.
  bool ends_pass = false;
  // BytesInUse::most and BytesInUse::at_event.
  std::uint64_t in_use_bytes = 0;
  std::uint64_t at_event_bytes = 0;
  std::uint64_t nanoseconds = 0;  // since the step began
};

struct StepRecord {
  std::vector<StepTensor> tensors;
  std::vector<StepEvent> events;
  std::uint64_t nanoseconds = 0;  // from the previous step's end, or the first save, to this step's end
};

inline bool is_same_tensor(const StepTensor& a, const StepTensor& b) {
  return a.bytes == b.bytes && a.signature == b.signature;
}
// Whether both steps save and read the same tensors in the same order.
bool is_same_course(const StepRecord& a, const StepRecord& b);
// Copies the members `held_until` and `stays` from `from` to `to`, for the tensors of their common beginning.
void inherit_holders(const std::vector<StepTensor>& from, std::vector<StepTensor>& to);
// The bytes of the step's two largest tensors.
std::uint64_t two_largest_bytes(const StepRecord& step);

// JSON that follows docs/learned_step.schema.json. The stash does not know the names of the program and its
// framework; a caller that knows them adds them.
std::string to_json(const StepRecord& step, const std::string& device);

}  // namespace vdnn::stash
