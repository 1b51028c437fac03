#include "vdnn/schedule_file.h"

#include <array>
#include <cstdio>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "vdnn/error.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

// FNV-1a (Fowler, Noll, Vo): enough to tell one tape from another, no protection against malice.
class Fingerprint {
 public:
  void add(std::uint64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      mix(static_cast<unsigned char>(number >> (8 * byte)));
    }
  }
  void add(const std::string& text) {
    add(text.size());
    for (const char c : text) {
      mix(static_cast<unsigned char>(c));
    }
  }
  std::string hex() const {
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash_));
    return text.data();
  }

 private:
  void mix(unsigned char byte) {
    hash_ ^= byte;
    hash_ *= 0x100000001b3ULL;
  }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

// The names of an enum's values, by number.
template <class Enum, std::size_t N>
Enum enum_from(const std::string& text, const char* what) {
  for (std::size_t value = 0; value < N; ++value) {
    if (to_string(static_cast<Enum>(value)) == text) {
      return static_cast<Enum>(value);
    }
  }
  throw DataError("schedule file: unknown " + std::string(what) + " '" + text + "'");
}

constexpr std::size_t kInstructionKinds = 7;

Json to_json(const Buffer& buffer) {
  return {{"name", buffer.name},
          {"bytes", buffer.bytes},
          {"space", buffer.space == Space::kHost ? "host" : "device"},
          {"persistent", buffer.persistent}};
}

Json to_json(const Instruction& instruction) {
  Json json{{"kind", to_string(instruction.kind)}, {"stream", to_string(instruction.stream)}};
  const auto put = [&](const char* key, std::uint32_t id) {
    if (id != kNone) {
      json[key] = id;
    }
  };
  put("op", instruction.op);
  put("value", instruction.value);
  put("buffer", instruction.buffer);
  put("host_buffer", instruction.host_buffer);
  if (instruction.kind == InstructionKind::kLaunch) {
    Json operands = Json::array();
    for (const BufferId operand : instruction.operands) {
      operands.push_back(operand == kNone ? Json(nullptr) : Json(operand));
    }
    json["operands"] = std::move(operands);
  }
  if (!instruction.waits.empty()) {
    Json waits = Json::array();
    for (const Wait& wait : instruction.waits) {
      waits.push_back({{"instruction", wait.instruction}, {"steps_ago", wait.steps_ago}});
    }
    json["waits"] = std::move(waits);
  }
  return json;
}

// Reading: every accessor says what is wrong where. Keys that nobody asked for are errors.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) {
      throw DataError("schedule file: " + where_ + " is not an object");
    }
  }

  const Json& at(const char* key) {
    known_.insert(key);
    const auto found = json_.find(key);
    if (found == json_.end()) {
      throw DataError("schedule file: " + where_ + " lacks '" + key + "'");
    }
    return *found;
  }
  bool has(const char* key) const { return json_.contains(key); }

  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) {
      fail(key, "is not a string");
    }
    return value.get<std::string>();
  }
  bool boolean(const char* key) {
    const Json& value = at(key);
    if (!value.is_boolean()) {
      fail(key, "is not true or false");
    }
    return value.get<bool>();
  }
  std::uint64_t number(const char* key) { return number(at(key), key); }
  std::uint64_t number(const Json& value, const char* key) const {
    if (!value.is_number_unsigned()) {
      fail(key, "is not a count");
    }
    return value.get<std::uint64_t>();
  }
  std::uint32_t id(const Json& value, const char* key) const {
    const std::uint64_t wide = number(value, key);
    if (wide >= kNone) {
      fail(key, "is out of range");
    }
    return static_cast<std::uint32_t>(wide);
  }
  std::uint32_t id(const char* key) { return id(at(key), key); }
  std::uint32_t id_or_none(const char* key) { return has(key) ? id(key) : kNone; }
  const Json& array(const char* key) {
    const Json& value = at(key);
    if (!value.is_array()) {
      fail(key, "is not a list");
    }
    return value;
  }

  void require_no_other_keys() const {
    for (const auto& item : json_.items()) {
      if (!known_.contains(item.key())) {
        throw DataError("schedule file: " + where_ + " has the unknown key '" + item.key() + "'");
      }
    }
  }

 private:
  [[noreturn]] void fail(const char* key, const char* what) const {
    throw DataError("schedule file: " + where_ + ": '" + key + "' " + what);
  }
  const Json& json_;
  std::string where_;
  std::set<std::string> known_;
};

Buffer buffer_from(const Json& json, std::size_t index) {
  Object object(json, "buffer " + std::to_string(index));
  Buffer buffer;
  buffer.name = object.text("name");
  buffer.bytes = object.number("bytes");
  const std::string space = object.text("space");
  if (space != "host" && space != "device") {
    throw DataError("schedule file: unknown space '" + space + "'");
  }
  buffer.space = space == "host" ? Space::kHost : Space::kDevice;
  buffer.persistent = object.boolean("persistent");
  object.require_no_other_keys();
  return buffer;
}

Wait wait_from(const Json& json, std::size_t index) {
  Object object(json, "a wait of instruction " + std::to_string(index));
  const Wait wait{.instruction = object.id("instruction"), .steps_ago = object.id("steps_ago")};
  object.require_no_other_keys();
  return wait;
}

Instruction instruction_from(const Json& json, std::size_t index) {
  Object object(json, "instruction " + std::to_string(index));
  Instruction instruction;
  instruction.kind =
      enum_from<InstructionKind, kInstructionKinds>(object.text("kind"), "kind of instruction");
  instruction.stream = enum_from<StreamRole, kStreamRoles>(object.text("stream"), "stream");
  instruction.op = object.id_or_none("op");
  instruction.value = object.id_or_none("value");
  instruction.buffer = object.id_or_none("buffer");
  instruction.host_buffer = object.id_or_none("host_buffer");
  if (object.has("operands")) {
    for (const Json& operand : object.array("operands")) {
      instruction.operands.push_back(operand.is_null() ? kNone : object.id(operand, "operands"));
    }
  }
  if (object.has("waits")) {
    for (const Json& wait : object.array("waits")) {
      instruction.waits.push_back(wait_from(wait, index));
    }
  }
  object.require_no_other_keys();
  return instruction;
}

Json parse(std::istream& in) {
  Json json = Json::parse(in, nullptr, false);
  if (json.is_discarded()) {
    throw DataError("schedule file: not JSON, or truncated");
  }
  Object object(json, "the file");
  if (object.text("type") != "schedule") {
    throw DataError("schedule file: type '" + object.text("type") + "' instead of 'schedule'");
  }
  if (object.number("schema") != kSchema) {
    throw DataError("schedule file: schema " + std::to_string(object.number("schema")) +
                    ", this version reads schema " + std::to_string(kSchema));
  }
  return json;
}

}  // namespace

std::string fingerprint(const Tape& tape) {
  Fingerprint print;
  print.add(tape.model());
  for (const Value& value : tape.values()) {
    print.add(value.name);
    print.add(static_cast<std::uint64_t>(value.kind));
    print.add(value.bytes);
  }
  for (const Op& op : tape.ops()) {
    print.add(op.name);
    for (const ValueId read : op.reads) {
      print.add(read);
    }
    print.add(op.writes.size());
    for (const ValueId write : op.writes) {
      print.add(write);
    }
    for (const Algorithm& algorithm : op.algorithms) {
      print.add(algorithm.name);
      print.add(algorithm.workspace_bytes);
    }
  }
  return print.hex();
}

void write_schedule(std::ostream& out, const Tape& tape, const Schedule& schedule,
                    const std::string& origin) {
  Json json{{"schema", kSchema}, {"type", "schedule"}};
  json["origin"] = Json::parse(origin);
  json["tape_fingerprint"] = fingerprint(tape);
  // By name: the list of algorithms is the library's, and its order may change with its version.
  Json algorithms = Json::array();
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    algorithms.push_back(tape.op(id).algorithms[schedule.algorithms[id]].name);
  }
  json["algorithms"] = std::move(algorithms);
  Json buffers = Json::array();
  for (const Buffer& buffer : schedule.buffers) {
    buffers.push_back(to_json(buffer));
  }
  json["buffers"] = std::move(buffers);
  Json instructions = Json::array();
  for (const Instruction& instruction : schedule.instructions) {
    instructions.push_back(to_json(instruction));
  }
  json["instructions"] = std::move(instructions);
  out << json.dump(1) << '\n';
}

std::string read_schedule_origin(std::istream& in) {
  const Json json = parse(in);
  return Object(json, "the file").at("origin").dump();
}

namespace {

std::uint32_t algorithm_from(const Op& op, const Json& json) {
  for (std::uint32_t index = 0; index < op.algorithms.size(); ++index) {
    if (json == op.algorithms[index].name) {
      return index;
    }
  }
  throw DataError("schedule file: " + op.name + " has no algorithm " + json.dump() + " here");
}

}  // namespace

Schedule read_schedule(std::istream& in, const Tape& tape) {
  const Json json = parse(in);
  Object object(json, "the file");
  object.number("schema");
  object.text("type");
  object.at("origin");
  if (object.text("tape_fingerprint") != fingerprint(tape)) {
    throw DataError("schedule file: made for another tape than '" + tape.model() +
                    "' has here (other sizes, or other algorithms)");
  }
  Schedule schedule;
  const Json& algorithms = object.array("algorithms");
  if (algorithms.size() != tape.ops().size()) {
    throw DataError("schedule file: " + std::to_string(algorithms.size()) + " algorithms for " +
                    std::to_string(tape.ops().size()) + " ops");
  }
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    schedule.algorithms.push_back(algorithm_from(tape.op(id), algorithms[id]));
  }
  for (const Json& buffer : object.array("buffers")) {
    schedule.buffers.push_back(buffer_from(buffer, schedule.buffers.size()));
  }
  for (const Json& instruction : object.array("instructions")) {
    schedule.instructions.push_back(instruction_from(instruction, schedule.instructions.size()));
  }
  object.require_no_other_keys();
  return schedule;
}

}  // namespace vdnn
