#include "vdnn/measured_costs.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/base/json_object.h"
#include "src/base/json_text.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr int kSchema = 1;
constexpr int kReckonedSchema = 2;  // some times have 0 launches: they are calculated
constexpr int kModelledSchema = 3;  // all times have 0 launches, and the file is marked as modelled
constexpr int kDeepest = 4;         // nesting depth of the file: an algorithm's time is the deepest object
constexpr const char* kDocument = "measured costs";
constexpr const char* kType = "measured costs";

// Limits above the figures of any machine and far below overflow.
constexpr double kMostRate = 1e24;    // per second
constexpr double kMostSeconds = 1e6;  // per launch

// The times of one op, by the names of its algorithms.
using Times = std::map<std::string, std::optional<MeasuredTime>>;

// --- settings ----------------------------------------------------------------------------------------------

// Calls visit(key, value) for each field, in the order of the file.
template <class Setting, class Visit>
void for_each_field(Setting& setting, const Visit& visit) {
  visit("model", setting.model);
  visit("input", setting.input);
  visit("classes", setting.classes);
  visit("batch", setting.batch);
  visit("device", setting.device);
  visit("threads", setting.threads);
  visit("algorithms_source", setting.algorithms_source);
  visit("feature_map_bytes", setting.feature_map_bytes);
  visit("persistent_bytes", setting.persistent_bytes);
}

template <class Value>
std::string in_words(const Value& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// The value of the field whose key is `wanted`, as text.
std::string field_of(const MeasuredSetting& setting, const std::string& wanted) {
  std::string text;
  for_each_field(setting, [&](const char* key, const auto& value) {
    if (key == wanted) {
      text = in_words(value);
    }
  });
  return text;
}

// --- reading -----------------------------------------------------------------------------------------------

using Json = nlohmann::json;

struct Object : JsonObject<Json> {
  Object(const Json& json, std::string where) : JsonObject(json, kDocument, std::move(where)) {}

  void read(const char* key, std::string& value) {
    value = text(key);
    if (value.empty()) {
      fail(key, "is empty");
    }
  }
  template <std::integral Integer>
  void read(const char* key, Integer& value) {
    const std::uint64_t wide = number(key);
    if (!std::in_range<Integer>(wide)) {
      fail(key, "is too large");
    }
    value = static_cast<Integer>(wide);
  }
  double rate(const char* key) {
    const double value = real(at(key), key);
    if (value < 1 || value > kMostRate) {
      fail(key, "is not a plausible rate");
    }
    return value;
  }
  double seconds(const char* key) {
    const double value = real(at(key), key);
    if (value < 0 || value > kMostSeconds) {
      fail(key, "is not a plausible time of a launch");
    }
    return value;
  }
};

LinkRates link_from(Object& file, const char* device_to_host, const char* host_to_device) {
  return {.device_to_host = file.rate(device_to_host), .host_to_device = file.rate(host_to_device)};
}

void require_no_faster_both_ways(const MeasuredCosts& costs) {
  for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
    if (costs.link_bytes_per_second_both_ways[direction] > costs.link_bytes_per_second[direction]) {
      throw DataError(std::string(kDocument) + ": a link's rate both ways must not exceed its rate one way");
    }
  }
}

// Reads the key "modelled", which only files of kModelledSchema have.
bool modelled_from(Object& file, std::uint64_t schema) {
  if (schema != kModelledSchema) {
    return false;
  }
  if (!file.boolean("modelled")) {
    file.fail("modelled", "must be true");
  }
  return true;
}

// Checks the number of launches of a time. Which numbers are valid depends on the schema.
void check_launches(const Object& object, std::uint64_t launches, std::uint64_t schema) {
  if (launches == 0 && schema == kSchema) {
    object.fail("launches", "must be at least 1");
  }
  if (launches > 0 && schema == kModelledSchema) {
    object.fail("launches", "must be 0: a model launches nothing");
  }
}

std::optional<MeasuredTime> time_from(const Json& json, const std::string& where, std::uint64_t schema) {
  if (json.is_null()) {
    return std::nullopt;
  }
  Object object(json, where);
  MeasuredTime time{.seconds = object.seconds("seconds"), .spread_seconds = object.seconds("spread_seconds")};
  object.read("launches", time.launches);
  if (time.seconds == 0) {
    object.fail("seconds", "must be above 0");
  }
  check_launches(object, time.launches, schema);
  object.require_no_other_keys();
  return time;
}

std::string in_words(const std::string& op, const std::string& algorithm) {
  return "op '" + op + "', algorithm '" + algorithm + "'";
}

Times times_from(const Json& json, const std::string& op, std::uint64_t schema) {
  if (!json.is_object()) {
    throw DataError(std::string(kDocument) + ": op '" + op + "' is not an object");
  }
  Times times;
  for (const auto& [algorithm, time] : json.items()) {
    times.emplace(algorithm, time_from(time, in_words(op, algorithm), schema));
  }
  if (std::ranges::none_of(times, [](const auto& time) { return time.second.has_value(); })) {
    throw DataError(std::string(kDocument) + ": op '" + op + "' has no algorithm that was measured");
  }
  return times;
}

// --- writing -----------------------------------------------------------------------------------------------

int schema_of(const MeasuredCosts& costs) {
  if (costs.modelled) {
    return kModelledSchema;
  }
  const bool reckoned = std::ranges::any_of(costs.ops, [](const auto& op) {
    return std::ranges::any_of(op.second,
                               [](const auto& time) { return time.second && time.second->launches == 0; });
  });
  return reckoned ? kReckonedSchema : kSchema;
}

// --- tapes -------------------------------------------------------------------------------------------------

std::uint64_t persistent_bytes(const Tape& tape) {
  std::uint64_t bytes = 0;
  for (const Value& value : tape.values()) {
    bytes += value.persistent() ? value.bytes : 0;
  }
  return bytes;
}

void require_known_ops(const Tape& tape, const MeasuredCosts& costs) {
  for (const auto& [name, times] : costs.ops) {
    const auto op = std::ranges::find(tape.ops(), name, &Op::name);
    if (op == tape.ops().end()) {
      throw InvalidArgument(std::string(kDocument) + ": there is no op '" + name + "' in '" + tape.model() +
                            "'");
    }
    for (const auto& [algorithm, time] : times) {
      if (std::ranges::find(op->algorithms, algorithm, &Algorithm::name) == op->algorithms.end()) {
        throw InvalidArgument(std::string(kDocument).append(": ").append(in_words(name, algorithm)) +
                              ": there is no such algorithm here");
      }
    }
  }
}

const Times& times_of(const Op& op, const MeasuredCosts& costs) {
  const auto times = costs.ops.find(op.name);
  if (times == costs.ops.end()) {
    throw InvalidArgument(std::string(kDocument) + ": nothing was measured of op '" + op.name + "'");
  }
  return times->second;
}

double slowest(const Times& times) {
  double seconds = 0;
  for (const auto& [algorithm, time] : times) {
    seconds = std::max(seconds, time ? time->seconds : 0);
  }
  return seconds;
}

void set_costs(Op& op, const Times& times, bool modelled) {
  // An algorithm without a time counts as slower than all measured algorithms, by the least possible
  // difference.
  const double unmeasured = std::nextafter(slowest(times), std::numeric_limits<double>::infinity());
  for (std::uint32_t index = 0; index < op.algorithms.size(); ++index) {
    Algorithm& algorithm = op.algorithms[index];
    const auto time = times.find(algorithm.name);
    if (time == times.end()) {
      throw InvalidArgument(std::string(kDocument) + ": op '" + op.name + "' was not measured with '" +
                            algorithm.name + "'");
    }
    Cost cost = op.cost_with(index);
    cost.modelled = modelled && (cost.modelled || cost.seconds == 0);  // a measured cost stays measured
    cost.seconds = time->second ? time->second->seconds : unmeasured;
    algorithm.cost = cost;
  }
}

}  // namespace

MeasuredSetting measured_setting(const Network& network, const Tape& tape, const std::string& device,
                                 int threads, const std::string& algorithms_source) {
  const Dims& images = network.type(network.input()).dims;
  return {.model = network.name(),
          .input = to_string(Dims(images.begin() + 1, images.end())),
          .classes = network.classes(),
          .batch = network.batch(),
          .device = device,
          .threads = threads,
          .algorithms_source = algorithms_source,
          .feature_map_bytes = tape.feature_map_bytes(),
          .persistent_bytes = persistent_bytes(tape)};
}

void require_measured_of(const MeasuredCosts& costs, const MeasuredSetting& here) {
  for_each_field(costs.setting, [&](const char* key, const auto& value) {
    const std::string measured = in_words(value);
    const std::string wanted = field_of(here, key);
    if (measured != wanted) {
      throw InvalidArgument(std::string(kDocument) + ": '" + key + "' is " + measured +
                            " in the file and would be " + wanted + " here: measure anew");
    }
  });
}

std::shared_ptr<const Tape> with_measured_costs(const Tape& tape, const MeasuredCosts& costs) {
  require_known_ops(tape, costs);
  Tape::Parts parts = tape.parts();
  for (Op& op : parts.ops) {
    if (!op.collective()) {  // a collective's time depends on the other ranks, too
      set_costs(op, times_of(op, costs), costs.modelled);
    }
  }
  return std::make_shared<const Tape>(std::move(parts));
}

SimProfile with_measured_rates(SimProfile profile, const MeasuredCosts& costs) {
  profile.link_bytes_per_second = costs.link_bytes_per_second;
  profile.link_bytes_per_second_both_ways = costs.link_bytes_per_second_both_ways;
  profile.launch_seconds = costs.launch_seconds;
  profile.source = (costs.modelled ? "modelled of " : "measured on ") + costs.setting.device;
  return profile;
}

std::string to_text(const MeasuredCosts& costs) {
  using Ordered = nlohmann::ordered_json;
  Ordered json{{"schema", schema_of(costs)}, {"type", kType}};
  if (costs.modelled) {
    json["modelled"] = true;
  }
  for_each_field(costs.setting, [&](const char* key, const auto& value) { json[key] = value; });
  json["link_gbytes_per_s"] =
      costs.link_gbytes_per_second ? Ordered(*costs.link_gbytes_per_second) : Ordered();
  json["device_to_host_bytes_per_second"] = costs.link_bytes_per_second.device_to_host;
  json["host_to_device_bytes_per_second"] = costs.link_bytes_per_second.host_to_device;
  json["device_to_host_bytes_per_second_both_ways"] = costs.link_bytes_per_second_both_ways.device_to_host;
  json["host_to_device_bytes_per_second_both_ways"] = costs.link_bytes_per_second_both_ways.host_to_device;
  json["launch_seconds"] = costs.launch_seconds;
  Ordered& ops = json["ops"] = Ordered::object();
  for (const auto& [op, times] : costs.ops) {
    Ordered& of_op = ops[op] = Ordered::object();
    for (const auto& [algorithm, time] : times) {
      of_op[algorithm] = time ? Ordered{{"seconds", time->seconds},
                                        {"spread_seconds", time->spread_seconds},
                                        {"launches", time->launches}}
                              : Ordered();
    }
  }
  return json.dump(1) + '\n';
}

MeasuredCosts parse_measured_costs(std::string_view text) {
  const Json json = parse_json_text<Json>(text, kDeepest);
  if (json.is_discarded()) {
    throw DataError(std::string(kDocument) + ": no JSON, or nested too deep");
  }
  Object file(json, "the file");
  const std::uint64_t schema = file.number("schema");
  if (schema < kSchema || schema > kModelledSchema) {
    throw DataError(std::string(kDocument) + ": its schema is " + std::to_string(schema) + "; known are " +
                    std::to_string(kSchema) + " to " + std::to_string(kModelledSchema));
  }
  if (file.text("type") != kType) {
    throw DataError(std::string(kDocument) + ": its type is not '" + kType + "'");
  }
  MeasuredCosts costs;
  costs.modelled = modelled_from(file, schema);
  for_each_field(costs.setting, [&](const char* key, auto& value) { file.read(key, value); });
  if (const Json& slowed = file.at("link_gbytes_per_s"); !slowed.is_null()) {
    costs.link_gbytes_per_second = file.real(slowed, "link_gbytes_per_s");
    if (*costs.link_gbytes_per_second <= 0) {
      file.fail("link_gbytes_per_s", "must be above 0");
    }
  }
  costs.link_bytes_per_second =
      link_from(file, "device_to_host_bytes_per_second", "host_to_device_bytes_per_second");
  costs.link_bytes_per_second_both_ways = link_from(file, "device_to_host_bytes_per_second_both_ways",
                                                    "host_to_device_bytes_per_second_both_ways");
  require_no_faster_both_ways(costs);
  costs.launch_seconds = file.seconds("launch_seconds");
  const Json& ops = file.at("ops");
  if (!ops.is_object()) {
    file.fail("ops", "is not an object");
  }
  for (const auto& [op, times] : ops.items()) {
    costs.ops.emplace(op, times_from(times, op, schema));
  }
  file.require_no_other_keys();
  return costs;
}

MeasuredCosts read_measured_costs(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw DataError("'" + path.string() + "' cannot be read");
  }
  try {
    return parse_measured_costs(text);
  } catch (const DataError& error) {
    throw DataError("'" + path.string() + "': " + error.what());
  }
}

}  // namespace vdnn
