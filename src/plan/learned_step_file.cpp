#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/base/json_object.h"
#include "src/base/json_text.h"
#include "vdnn/error.h"
#include "vdnn/learned_step.h"

namespace vdnn {

namespace {

using StepJson = nlohmann::ordered_json;

constexpr int kStepSchema = 1;
constexpr int kDeepestOfStep = 3;  // levels of nesting: file, list, event
constexpr const char* kStepDocument = "learned step";

// Limits above the figures of any device and step, and small enough that sums do not overflow.
constexpr std::uint64_t kMostStepBytes = std::uint64_t{1} << 60U;
constexpr double kMostStepSeconds = 1e6;

// --- writing -----------------------------------------------------------------------------------------------

StepJson to_json(const StepEvent& event) {
  StepJson json;
  if (event.kind == StepEvent::Kind::kSave) {
    json["save"] = event.bytes;
    if (event.held_until) {
      json["held_until"] = *event.held_until;
    }
  } else {
    json["read"] = event.tensor;
  }
  json["seconds"] = event.seconds;
  json["in_use_bytes"] = event.in_use_bytes;
  if (event.peak_bytes) {
    json["peak_bytes"] = *event.peak_bytes;
  }
  return json;
}

// --- reading -----------------------------------------------------------------------------------------------

struct StepObject : JsonObject<StepJson> {
  StepObject(const StepJson& json, std::string where) : JsonObject(json, kStepDocument, std::move(where)) {}

  std::string name(const char* key) {
    std::string value = text(key);
    if (value.empty()) {
      fail(key, "is empty");
    }
    return value;
  }
  std::uint64_t bytes(const char* key) {
    const std::uint64_t value = number(key);
    if (value > kMostStepBytes) {
      fail(key, "is more than any device has");
    }
    return value;
  }
  double seconds_from(const char* key, double earliest) {
    const double value = real(at(key), key);
    if (!(value >= earliest)) {
      fail(key, "is earlier than the event before");
    }
    if (value > kMostStepSeconds) {
      fail(key, "is longer than any step takes");
    }
    return value;
  }
};

// Reads events in order, and checks each event against the events before it.
class EventReader {
 public:
  explicit EventReader(std::size_t events) : events_(events) {}

  StepEvent read(const StepJson& json, std::size_t index) {
    StepObject object(json, "event " + std::to_string(index));
    StepEvent event;
    if (object.has("save") == object.has("read")) {
      throw DataError(std::string(kStepDocument) + ": event " + std::to_string(index) +
                      " must be either a 'save' or a 'read'");
    }
    if (object.has("save")) {
      read_save(object, index, event);
    } else {
      event.kind = StepEvent::Kind::kRead;
      event.tensor = object.id("read", tensors_);
    }
    event.seconds = seconds_ = object.seconds_from("seconds", seconds_);
    event.in_use_bytes = object.bytes("in_use_bytes");
    if (object.has("peak_bytes")) {
      event.peak_bytes = object.bytes("peak_bytes");
    }
    object.require_no_other_keys();
    return event;
  }

 private:
  void read_save(StepObject& object, std::size_t index, StepEvent& event) {
    event.tensor = tensors_++;
    event.bytes = object.bytes("save");
    if (event.bytes == 0) {
      object.fail("save", "must be more than 0 bytes");
    }
    if (object.has("held_until")) {
      event.held_until = object.id("held_until", events_ + 1);
      if (*event.held_until <= index) {
        object.fail("held_until", "is not a later event");
      }
    }
  }

  std::size_t events_;
  std::uint32_t tensors_ = 0;
  double seconds_ = 0;
};

std::string of_event(std::size_t index) {
  return std::string(kStepDocument) + ": event " + std::to_string(index) + ": ";
}

// Checks that the bytes in use at each event include all saved tensors that are read at the event or later.
// Otherwise a plan could not know how much memory an offload frees.
void require_bytes_in_use(const std::vector<StepEvent>& events) {
  // By tensor: the event of its last read, or of its save if it is never read.
  std::vector<std::size_t> last_reads;
  for (std::size_t index = 0; index < events.size(); ++index) {
    if (events[index].kind == StepEvent::Kind::kSave) {
      last_reads.push_back(index);
    } else {
      last_reads[events[index].tensor] = index;
    }
  }
  std::vector<std::uint64_t> bytes;
  std::uint64_t saved = 0;
  for (std::size_t index = 0; index < events.size(); ++index) {
    const StepEvent& event = events[index];
    if (event.kind == StepEvent::Kind::kSave) {
      bytes.push_back(last_reads[event.tensor] > index ? event.bytes : 0);
      saved += bytes.back();
    }
    if (saved > event.in_use_bytes) {
      throw DataError(of_event(index) + "'in_use_bytes' " + std::to_string(event.in_use_bytes) +
                      " is less than the " + std::to_string(saved) +
                      " bytes of the saved tensors that are read at it or later");
    }
    if (last_reads[event.tensor] == index) {
      saved -= bytes[event.tensor];
    }
  }
}

void require_peak(const LearnedStep& step) {
  for (std::size_t index = 0; index < step.events.size(); ++index) {
    const StepEvent& event = step.events[index];
    if (std::max(event.in_use_bytes, event.peak_bytes.value_or(0)) > step.peak_bytes) {
      throw DataError(of_event(index) + "more bytes are in use than the step's 'peak_bytes', " +
                      std::to_string(step.peak_bytes));
    }
  }
}

std::optional<std::int64_t> batch_from(StepObject& file) {
  if (!file.has("batch")) {
    return std::nullopt;
  }
  const std::uint64_t batch = file.number("batch");
  if (batch == 0 || !std::in_range<std::int64_t>(batch)) {
    file.fail("batch", "is no number of samples");
  }
  return static_cast<std::int64_t>(batch);
}

std::vector<StepEvent> events_from(StepObject& file) {
  const StepJson& list = file.array("events");
  if (list.empty()) {
    file.fail("events", "is empty: the step has saved nothing");
  }
  EventReader reader(list.size());
  std::vector<StepEvent> events;
  for (const StepJson& json : list) {
    events.push_back(reader.read(json, events.size()));
  }
  return events;
}

}  // namespace

std::string to_text(const LearnedStep& step) {
  StepJson json{{"schema", kStepSchema},
                {"type", kStepDocument},
                {"program", step.program},
                {"framework", step.framework},
                {"device", step.device}};
  if (step.batch) {
    json["batch"] = *step.batch;
  }
  json["seconds"] = step.seconds;
  json["peak_bytes"] = step.peak_bytes;
  // Writes one event per line, since people read and compare such files.
  std::string text = json.dump(2);
  text.erase(text.size() - 2);  // "\n}"
  text += ",\n  \"events\": [";
  for (const StepEvent& event : step.events) {
    text += (text.back() == '[' ? "\n    " : ",\n    ") + to_json(event).dump();
  }
  return text + "\n  ]\n}\n";
}

LearnedStep parse_learned_step(std::string_view text) {
  const auto json = parse_json_text<StepJson>(text, kDeepestOfStep);
  if (json.is_discarded()) {
    throw DataError(std::string(kStepDocument) + ": this is not the JSON of such a file");
  }
  StepObject file(json, "the file");
  if (file.text("type") != kStepDocument) {
    file.fail("type", "is not 'learned step'");
  }
  if (file.number("schema") != kStepSchema) {
    file.fail("schema", "is another one than 1");
  }
  LearnedStep step{.program = file.name("program"),
                   .framework = file.name("framework"),
                   .device = file.name("device"),
                   .batch = batch_from(file),
                   .events = events_from(file)};
  step.seconds = file.seconds_from("seconds", step.events.back().seconds);
  if (step.seconds == 0) {
    file.fail("seconds", "must be more than 0");
  }
  step.peak_bytes = file.bytes("peak_bytes");
  file.require_no_other_keys();
  require_bytes_in_use(step.events);
  require_peak(step);
  return step;
}

LearnedStep read_learned_step(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw DataError("'" + path.string() + "' cannot be read");
  }
  try {
    return parse_learned_step(text);
  } catch (const DataError& error) {
    throw DataError("'" + path.string() + "': " + error.what());
  }
}

}  // namespace vdnn
