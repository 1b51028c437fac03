#include "src/stash/learned_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace vdnn::stash {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kNanosecondsPerSecond = 1e9;

// Where one tensor is saved and last read, in events of its step.
struct Course {
  std::size_t saved = 0;
  std::optional<std::size_t> first_read;
  std::size_t last_read = 0;  // the tensor's save if it is never read
};

std::vector<Course> courses_of(const StepRecord& step) {
  std::vector<Course> courses(step.tensors.size());
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    Course& course = courses[step.events[i].tensor];
    if (step.events[i].kind == StepEvent::Kind::kSave) {
      course.saved = i;
    } else if (!course.first_read) {
      course.first_read = i;
    }
    course.last_read = i;
  }
  return courses;
}

// By event: the bytes of saved tensors that are read later. At least these bytes are in use at the event. A
// caller that counts only part of its memory may report fewer bytes; then the JSON text has the bytes of the
// saved tensors instead.
std::vector<std::uint64_t> saved_bytes_of(const StepRecord& step, const std::vector<Course>& courses) {
  std::vector<std::uint64_t> bytes(step.events.size(), 0);
  std::uint64_t saved = 0;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const std::uint32_t tensor = step.events[i].tensor;
    const Course& course = courses[tensor];
    saved += course.saved == i && course.last_read > i ? step.tensors[tensor].bytes : 0;
    bytes[i] = saved;
    saved -= course.saved < i && course.last_read == i ? step.tensors[tensor].bytes : 0;
  }
  return bytes;
}

// The first event at which the tensor could leave; absent if it is the event after the tensor's save.
std::optional<std::size_t> held_until(const StepTensor& tensor, const Course& course, std::size_t events) {
  const std::size_t at_read = tensor.stays && course.first_read ? *course.first_read + 1 : 0;
  const std::size_t until = std::min(std::max(tensor.held_until, at_read), events);
  return until > course.saved + 1 ? std::optional(until) : std::nullopt;
}

Json event_to_json(const StepRecord& step, std::size_t index, const std::vector<Course>& courses,
                   std::uint64_t saved_bytes) {
  const StepEvent& event = step.events[index];
  const StepTensor& tensor = step.tensors[event.tensor];
  Json json;
  if (event.kind == StepEvent::Kind::kSave) {
    json["save"] = tensor.bytes;
    if (const auto until = held_until(tensor, courses[event.tensor], step.events.size())) {
      json["held_until"] = *until;
    }
  } else {
    json["read"] = event.tensor;
  }
  json["seconds"] = static_cast<double>(event.nanoseconds) / kNanosecondsPerSecond;
  const std::uint64_t in_use_bytes = std::max(event.at_event_bytes, saved_bytes);
  json["in_use_bytes"] = in_use_bytes;
  if (event.in_use_bytes > in_use_bytes) {
    json["peak_bytes"] = event.in_use_bytes;
  }
  return json;
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

void inherit_holders(const std::vector<StepTensor>& from, std::vector<StepTensor>& to) {
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    to[i].stays = to[i].stays || from[i].stays;
    to[i].held_until = std::max(to[i].held_until, from[i].held_until);
  }
}

std::string to_json(const StepRecord& step, const std::string& device) {
  const std::vector<Course> courses = courses_of(step);
  const std::vector<std::uint64_t> saved_bytes = saved_bytes_of(step, courses);
  Json events = Json::array();
  std::uint64_t peak_bytes = 1;  // the minimum of the schema
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    events.push_back(event_to_json(step, i, courses, saved_bytes[i]));
    peak_bytes = std::max({peak_bytes, step.events[i].in_use_bytes, saved_bytes[i]});
  }
  // The schema requires a positive length, but a coarse clock may measure 0.
  const std::uint64_t nanoseconds =
      std::max<std::uint64_t>({step.nanoseconds, step.events.back().nanoseconds, 1});
  const Json json{{"schema", 1},
                  {"type", "learned step"},
                  {"program", "program"},
                  {"framework", "unknown"},
                  {"device", device},
                  {"seconds", static_cast<double>(nanoseconds) / kNanosecondsPerSecond},
                  {"peak_bytes", peak_bytes},
                  {"events", events}};
  return json.dump();
}

}  // namespace vdnn::stash
