#include "src/ops/cuda/engine_timings.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "src/base/atomic_file.h"
#include "src/base/file_descriptor.h"
#include "src/base/json_text.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::cuda {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kType = "engine timings";
constexpr int kDeepest = 6;  // nesting depth of an engine's numbers
// A thousand times the size of the file for the whole zoo.
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20U;

constexpr std::array kPlace{
    std::pair("gpu", &TrialPlace::gpu),
    std::pair("driver", &TrialPlace::driver),
    std::pair("cudnn", &TrialPlace::cudnn),
    std::pair("cudnn_frontend", &TrialPlace::cudnn_frontend),
};

constexpr std::array kLimits{
    std::pair("untimed_within_seconds", &EngineTrial::untimed_within_seconds),
    std::pair("untimed_within_seconds_tf32", &EngineTrial::untimed_within_seconds_tf32),
};

double finite(const Json& json) {
  const double value = json.get<double>();
  if (!std::isfinite(value) || value < 0) {
    throw DataError("engine timings: " + json.dump() + " is neither a time nor an error");
  }
  return value;
}

// JSON has no infinity.
Json json_of_error(double error) {
  return std::isfinite(error) ? Json(error) : Json(nullptr);
}

Json json_of(const std::string& name, const EngineTrial& trial) {
  Json json{
      {"name", name}, {"worst_error", json_of_error(trial.worst_error)}, {"tolerance", trial.tolerance}};
  if (trial.seconds) {
    json["seconds"] = *trial.seconds;
  }
  for (const auto& [key, limit] : kLimits) {
    if (trial.*limit) {
      json[key] = *(trial.*limit);
    }
  }
  return json;
}

EngineTrial trial_of(const Json& json) {
  const Json& error = json.at("worst_error");
  EngineTrial trial{
      .worst_error = error.is_null() ? std::numeric_limits<double>::infinity() : finite(error),
      .tolerance = finite(json.at("tolerance")),
  };
  if (json.contains("seconds")) {
    trial.seconds = finite(json.at("seconds"));
  }
  for (const auto& [key, limit] : kLimits) {
    if (json.contains(key)) {
      trial.*limit = finite(json.at(key));
    }
  }
  return trial;
}

TrialPlace place_of(const Json& json) {
  TrialPlace place;
  for (const auto& [name, part] : kPlace) {
    place.*part = json.at(name).get<std::string>();
  }
  return place;
}

void require_type(const Json& json) {
  if (json.at("type") != kType) {
    throw DataError("engine timings: the file is of type " + json.at("type").dump());
  }
  if (json.at("schema") != kSchema) {
    throw DataError("engine timings: the file is of version " + json.at("schema").dump() + ", not " +
                    std::to_string(kSchema));
  }
}

std::string read_all(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw DataError("it is not a regular file");
  }
  if (const std::uint64_t bytes = std::filesystem::file_size(path); bytes > kMostBytes) {
    throw DataError("it has " + format_size(bytes) + "; engine timings have at most " +
                    format_size(kMostBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    throw DataError("it cannot be read");
  }
  return text;
}

// Reads the file. Returns no timings if the file is invalid, which the constructor has already reported.
EngineTimings what_is_in(const std::filesystem::path& path) {
  try {
    return EngineTimings(read_all(path));
  } catch (const DataError&) {
  } catch (const std::filesystem::filesystem_error&) {
  }
  return {};
}

// A lock between processes that write. It locks the folder, since writing replaces the file itself. On a file
// system without locks, writers do not wait for each other, and the last write remains.
class Turn {
 public:
  explicit Turn(const std::filesystem::path& file)
      : folder_(::open(file.has_parent_path() ? file.parent_path().c_str() : ".",
                       O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (folder_.is_open() && ::flock(folder_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }

 private:
  FileDescriptor folder_;  // closing it releases the lock
};

}  // namespace

EngineTimings::EngineTimings(std::string_view text) {
  const auto json = parse_json_text<Json>(text, kDeepest);
  if (json.is_discarded()) {
    throw DataError("engine timings: the file is no JSON, or nested too deep");
  }
  try {
    require_type(json);
    for (const Json& device : json.at("devices").get_ref<const Json::array_t&>()) {
      ByQuestion& questions = places_[place_of(device)];
      for (const auto& [question, engines] : device.at("questions").get_ref<const Json::object_t&>()) {
        for (const Json& engine : engines.get_ref<const Json::array_t&>()) {
          questions[question][engine.at("name").get<std::string>()] = trial_of(engine);
        }
      }
    }
  } catch (const Json::exception& error) {
    throw DataError(std::string("engine timings: ") + error.what());
  }
}

std::string EngineTimings::text() const {
  std::string devices;
  for (const auto& [place, questions] : places_) {
    std::string lines;
    for (const auto& [question, engines] : questions) {
      Json list = Json::array();
      for (const auto& [name, trial] : engines) {
        list.push_back(json_of(name, trial));
      }
      lines += (lines.empty() ? "" : ",\n") + Json(question).dump() + ": " + list.dump();
    }
    std::string head;
    for (const auto& [name, part] : kPlace) {
      head += Json(name).dump() + ": " + Json(place.*part).dump() + ", ";
    }
    devices.append(devices.empty() ? "{" : ",\n{").append(head);
    devices.append("\"questions\": {\n").append(lines).append("\n}}");
  }
  return "{\"schema\": " + std::to_string(kSchema) + ", \"type\": " + Json(kType).dump() +
         ", \"devices\": [\n" + devices + "\n]}\n";
}

const EngineTrial* EngineTimings::find(const TrialPlace& place, const std::string& question,
                                       const std::string& engine) const {
  const auto questions = places_.find(place);
  if (questions == places_.end()) {
    return nullptr;
  }
  const auto engines = questions->second.find(question);
  if (engines == questions->second.end()) {
    return nullptr;
  }
  const auto found = engines->second.find(engine);
  return found == engines->second.end() ? nullptr : &found->second;
}

void EngineTimings::record(const TrialPlace& place, const std::string& question, const std::string& engine,
                           const EngineTrial& trial) {
  places_[place][question][engine] = trial;
}

void EngineTimings::add_missing(const EngineTimings& other) {
  for (const auto& [place, questions] : other.places_) {
    for (const auto& [question, engines] : questions) {
      places_[place][question].insert(engines.begin(), engines.end());
    }
  }
}

EngineTimingsFile::EngineTimingsFile(std::optional<std::filesystem::path> path, TrialPlace place, Warn warn)
    : path_(std::move(path)), place_(std::move(place)), warn_(std::move(warn)) {
  std::error_code error;
  if (!path_ || !std::filesystem::exists(*path_, error)) {
    return;
  }
  try {
    timings_ = read_ = EngineTimings(read_all(*path_));
  } catch (const DataError& damage) {
    warn_("'" + path_->string() + "' is ignored and will be replaced: " + damage.what());
  } catch (const std::filesystem::filesystem_error& failure) {
    warn_("'" + path_->string() + "' is ignored: " + failure.what());
  }
}

const EngineTrial* EngineTimingsFile::find(const std::string& question, const std::string& engine) const {
  return timings_.find(place_, question, engine);
}

void EngineTimingsFile::record(const std::string& question, const std::string& engine,
                               const EngineTrial& trial) {
  timings_.record(place_, question, engine, trial);
  changed_.emplace(question, engine);
}

// Merges this run's results with those that other runs have written since this run read the file.
EngineTimings EngineTimingsFile::with_the_files() const {
  EngineTimings merged = what_is_in(*path_);
  for (const auto& [question, engine] : changed_) {
    const EngineTrial* const there = merged.find(place_, question, engine);
    const EngineTrial* const before = read_.find(place_, question, engine);
    const bool theirs = there != nullptr && (before == nullptr || *there != *before);
    if (!theirs) {
      merged.record(place_, question, engine, *timings_.find(place_, question, engine));
    }
  }
  merged.add_missing(timings_);
  return merged;
}

void EngineTimingsFile::save() {
  if (!path_ || changed_.empty()) {
    return;
  }
  try {
    const Turn turn(*path_);
    timings_ = read_ = with_the_files();
    changed_.clear();
    const std::string text = timings_.text();
    AtomicFile file(*path_, text.size());
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  } catch (const DataError& error) {
    warn_(std::string("engine timings are not saved: ") + error.what());
    path_.reset();
  }
}

}  // namespace vdnn::cuda
