#include "vdnn/schedule_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <istream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "src/base/json_object.h"
#include "src/base/json_text.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

// The FNV-1a hash (Fowler, Noll, Vo). It suffices to distinguish tapes, but does not protect against forgery.
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

// The value of an enum of N values whose name is `text`.
template <class Enum, std::size_t N>
Enum enum_from(const std::string& text, const char* what) {
  for (std::size_t value = 0; value < N; ++value) {
    if (to_string(static_cast<Enum>(value)) == text) {
      return static_cast<Enum>(value);
    }
  }
  throw DataError("schedule file: unknown " + std::string(what) + " '" + text + "'");
}

constexpr std::size_t kInstructionKinds = 8;

Json to_json(const Buffer& buffer) {
  Json json{{"name", buffer.name},
            {"bytes", buffer.bytes},
            {"space", buffer.space == Space::kHost ? "host" : "device"},
            {"persistent", buffer.persistent}};
  if (buffer.offset) {
    json["offset"] = *buffer.offset;
  }
  return json;
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
  if (is_launch(instruction.kind)) {
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

// An object in a schedule file. Messages of errors name the file's kind and the object.
struct Object : JsonObject<Json> {
  Object(const Json& json, std::string where) : JsonObject(json, "schedule file", std::move(where)) {}
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
  if (object.has("offset")) {
    buffer.offset = object.number("offset");
  }
  object.require_no_other_keys();
  return buffer;
}

// The bounds of the ids that an instruction may have.
struct Bounds {
  const Tape& tape;
  std::size_t buffers = 0;
  std::size_t instructions = 0;
};

Wait wait_from(const Json& json, std::size_t index, const Bounds& bounds) {
  Object object(json, "a wait of instruction " + std::to_string(index));
  const Wait wait{.instruction = object.id("instruction", bounds.instructions),
                  .steps_ago = object.id("steps_ago", 2)};
  object.require_no_other_keys();
  return wait;
}

// Reads a buffer for each value that the op reads or writes, and a buffer or null for the workspace.
std::vector<BufferId> operands_from(Object& object, const Op& op, const Bounds& bounds) {
  const Json& json = object.array("operands");
  const std::size_t values = op.reads.size() + op.writes.size();
  if (json.size() != values + 1) {
    throw DataError("schedule file: " + op.name + " has " + std::to_string(json.size()) +
                    " operands instead of " + std::to_string(values + 1));
  }
  std::vector<BufferId> operands;
  for (const Json& operand : json) {
    const bool no_workspace = operand.is_null() && operands.size() == values;
    operands.push_back(no_workspace ? kNone : object.id(operand, "operands", bounds.buffers));
  }
  return operands;
}

Instruction instruction_from(const Json& json, std::size_t index, const Bounds& bounds) {
  Object object(json, "instruction " + std::to_string(index));
  Instruction instruction;
  instruction.kind =
      enum_from<InstructionKind, kInstructionKinds>(object.text("kind"), "kind of instruction");
  instruction.stream = enum_from<StreamRole, kStreamRoles>(object.text("stream"), "stream");
  switch (instruction.kind) {
    case InstructionKind::kLaunch:
    case InstructionKind::kRecompute:
      instruction.op = object.id("op", bounds.tape.ops().size());
      instruction.operands = operands_from(object, bounds.tape.op(instruction.op), bounds);
      break;
    case InstructionKind::kOffload:
    case InstructionKind::kPrefetch:
      instruction.host_buffer = object.id("host_buffer", bounds.buffers);
      [[fallthrough]];
    case InstructionKind::kLoad:
    case InstructionKind::kReadResult:
      instruction.value = object.id("value", bounds.tape.values().size());
      [[fallthrough]];
    case InstructionKind::kAllocate:
    case InstructionKind::kRelease:
      instruction.buffer = object.id("buffer", bounds.buffers);
      break;
  }
  if (object.has("waits")) {
    for (const Json& wait : object.array("waits")) {
      instruction.waits.push_back(wait_from(wait, index, bounds));
    }
  }
  object.require_no_other_keys();
  return instruction;
}

// The limit bounds the recursion of the parser. No schedule is nested that deeply.
constexpr int kDeepest = 64;

Json parse(std::istream& in) {
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Json json = parse_json_text<Json>(text, kDeepest);
  if (json.is_discarded()) {
    throw DataError("schedule file: not JSON, truncated, or nested too deeply");
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

namespace {

// Positions in op.algorithms.
using Order = std::vector<std::size_t>;

Order as_listed(const Op& op) {
  Order order(op.algorithms.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

Order by_name(const Op& op) {
  Order order = as_listed(op);
  std::ranges::stable_sort(order, {}, [&](std::size_t index) { return op.algorithms[index].name; });
  return order;
}

std::string fingerprint_in(const Tape& tape, Order (*order_of)(const Op&)) {
  Fingerprint print;
  print.add(tape.model());
  for (const Value& value : tape.values()) {
    print.add(value.name);
    print.add(static_cast<std::uint64_t>(value.kind));
    print.add(value.bytes);
  }
  for (const ValueId input : tape.inputs()) {
    print.add(input);
  }
  print.add(tape.results().size());
  for (const ValueId result : tape.results()) {
    print.add(result);
  }
  for (const Op& op : tape.ops()) {
    print.add(op.name);
    print.add(op.reads.size());
    for (const ValueId read : op.reads) {
      print.add(read);
    }
    print.add(op.writes.size());
    for (const ValueId write : op.writes) {
      print.add(write);
    }
    print.add(op.may_overwrite.size());
    for (const Overwrite& permission : op.may_overwrite) {
      print.add(permission.write);
      print.add(permission.read);
    }
    print.add(op.algorithms.size());
    for (const std::size_t index : order_of(op)) {
      print.add(op.algorithms[index].name);
      print.add(op.algorithms[index].workspace_bytes);
    }
  }
  return print.hex();
}

// Also accepts the fingerprints of older files, which depend on the order of algorithms.
bool is_of(const std::string& print, const Tape& tape) {
  return print == fingerprint_in(tape, by_name) || print == fingerprint_in(tape, as_listed);
}

}  // namespace

std::string fingerprint(const Tape& tape) {
  return fingerprint_in(tape, by_name);
}

void write_schedule(std::ostream& out, const Tape& tape, const Schedule& schedule,
                    const std::string& origin) {
  Json json{{"schema", kSchema}, {"type", "schedule"}};
  json["origin"] = Json::parse(origin, nullptr, false);
  if (!json["origin"].is_object()) {
    throw InvalidArgument("the origin of a schedule is not a JSON object: " + origin);
  }
  json["tape_fingerprint"] = fingerprint(tape);
  // Stores algorithms by name, since their order in Op::algorithms may change with the library's version.
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
  if (schedule.arena_bytes > 0) {
    json["arena_bytes"] = schedule.arena_bytes;
  }
  Json instructions = Json::array();
  for (const Instruction& instruction : schedule.instructions) {
    instructions.push_back(to_json(instruction));
  }
  json["instructions"] = std::move(instructions);
  out << json.dump(1) << '\n';
}

namespace {

const Json& origin_of(Object& file) {
  const Json& origin = file.at("origin");
  if (!origin.is_object()) {
    throw DataError("schedule file: 'origin' is not an object");
  }
  return origin;
}

}  // namespace

std::string read_schedule_origin(std::istream& in) {
  const Json json = parse(in);
  Object object(json, "the file");
  return origin_of(object).dump();
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
  origin_of(object);
  if (!is_of(object.text("tape_fingerprint"), tape)) {
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
  if (object.has("arena_bytes")) {
    schedule.arena_bytes = object.number("arena_bytes");
  }
  const Json& instructions = object.array("instructions");
  const Bounds bounds{.tape = tape, .buffers = schedule.buffers.size(), .instructions = instructions.size()};
  for (const Json& instruction : instructions) {
    schedule.instructions.push_back(instruction_from(instruction, schedule.instructions.size(), bounds));
  }
  object.require_no_other_keys();
  return schedule;
}

}  // namespace vdnn
