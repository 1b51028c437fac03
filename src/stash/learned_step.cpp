#include "src/stash/learned_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace vdnn::stash {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kNanosecondsPerSecond = 1e9;

// By tensor: the index of the event that reads it first.
std::vector<std::optional<std::size_t>> first_reads(const StepRecord& step) {
  std::vector<std::optional<std::size_t>> first(step.tensors.size());
  for (std::size_t i = step.events.size(); i-- > 0;) {
    if (step.events[i].kind == StepEvent::Kind::kRead) {
      first[step.events[i].tensor] = i;
    }
  }
  return first;
}

// The first event at which the tensor could leave; nothing: at the one after its save.
std::optional<std::size_t> held_until(const StepTensor& tensor, std::optional<std::size_t> first_read) {
  if (tensor.stays && first_read) {
    return first_read;
  }
  return tensor.held_until > 0 ? std::optional(tensor.held_until) : std::nullopt;
}

Json event_to_json(const StepEvent& event, const StepTensor& tensor, std::optional<std::size_t> first_read) {
  Json json;
  if (event.kind == StepEvent::Kind::kSave) {
    json["save"] = tensor.bytes;
    if (const std::optional<std::size_t> until = held_until(tensor, first_read)) {
      json["held_until"] = *until;
    }
  } else {
    json["read"] = event.tensor;
  }
  json["seconds"] = static_cast<double>(event.nanoseconds) / kNanosecondsPerSecond;
  json["in_use_bytes"] = event.in_use_bytes;
  return json;
}

std::uint64_t peak_bytes(const StepRecord& step) {
  std::uint64_t peak = 1;  // the schema's least
  for (const StepEvent& event : step.events) {
    peak = std::max(peak, event.in_use_bytes);
  }
  return peak;
}

}  // namespace

bool is_same_course(const StepRecord& a, const StepRecord& b) {
  return std::ranges::equal(a.tensors, b.tensors, is_same_tensor) &&
         std::ranges::equal(a.events, b.events, [](const StepEvent& one, const StepEvent& other) {
           return one.kind == other.kind && one.tensor == other.tensor;
         });
}

std::uint64_t two_largest_bytes(const StepRecord& step) {
  std::uint64_t largest = 0;
  std::uint64_t second = 0;
  for (const StepTensor& tensor : step.tensors) {
    second = std::max(second, std::min(largest, tensor.bytes));
    largest = std::max(largest, tensor.bytes);
  }
  return largest + second;
}

std::string to_json(const StepRecord& step, const std::string& device) {
  const std::vector<std::optional<std::size_t>> first = first_reads(step);
  Json events = Json::array();
  for (const StepEvent& event : step.events) {
    events.push_back(event_to_json(event, step.tensors[event.tensor], first[event.tensor]));
  }
  // The schema asks for a length, and a clock may not have moved.
  const std::uint64_t nanoseconds = std::max<std::uint64_t>(step.events.back().nanoseconds, 1);
  const Json json{{"schema", 1},
                  {"type", "learned step"},
                  {"program", "program"},
                  {"framework", "unknown"},
                  {"device", device},
                  {"events", events},
                  {"seconds", static_cast<double>(nanoseconds) / kNanosecondsPerSecond},
                  {"peak_bytes", peak_bytes(step)}};
  return json.dump();
}

}  // namespace vdnn::stash
