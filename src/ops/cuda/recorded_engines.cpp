#include "src/ops/cuda/recorded_engines.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/json_text.h"

namespace vdnn::cuda {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr int kDeepest = 5;  // the notes of an engine of a question of "engines"

constexpr std::array kNotes{
    std::pair(NumericalNote::kTensorCore, "tensor core"),
    std::pair(NumericalNote::kDownConvertInputs, "down convert inputs"),
    std::pair(NumericalNote::kReducedPrecisionReduction, "reduced precision reduction"),
    std::pair(NumericalNote::kFft, "fft"),
    std::pair(NumericalNote::kNondeterministic, "nondeterministic"),
    std::pair(NumericalNote::kWinograd, "winograd"),
    std::pair(NumericalNote::kStrictNanPropagation, "strict nan propagation"),
};

NumericalNote note_of(const std::string& text) {
  for (const auto& [note, name] : kNotes) {
    if (name == text) {
      return note;
    }
  }
  return NumericalNote::kUnknown;
}

std::string text_of(NumericalNote note) {
  for (const auto& [known, name] : kNotes) {
    if (known == note) {
      return name;
    }
  }
  return "unknown";
}

Json json_of(const Engine& engine) {
  Json notes = Json::array();
  for (const NumericalNote note : engine.notes) {
    notes.push_back(text_of(note));
  }
  return {{"name", engine.name}, {"workspace_bytes", engine.workspace_bytes}, {"notes", std::move(notes)}};
}

Engine engine_of(const Json& json) {
  Engine engine{.name = json.at("name").get<std::string>(),
                .workspace_bytes = json.at("workspace_bytes").get_ref<const Json::number_unsigned_t&>()};
  for (const Json& note : json.at("notes").get_ref<const Json::array_t&>()) {
    engine.notes.push_back(note_of(note.get<std::string>()));
  }
  return engine;
}

std::vector<Engine> engines_of(const Json& json) {
  std::vector<Engine> engines;
  for (const Json& engine : json.get_ref<const Json::array_t&>()) {
    engines.push_back(engine_of(engine));
  }
  return engines;
}

}  // namespace

RecordedEngines::RecordedEngines(const EngineSource& source, std::span<const EngineQuestion> questions)
    : source_(source.name()) {
  for (const EngineQuestion& question : questions) {
    answers_.emplace(to_string(question), choosable(source.list(question)));
  }
}

RecordedEngines::RecordedEngines(std::string_view text) {
  const auto json = parse_json_text<Json>(text, kDeepest);
  try {
    if (json.at("schema") != kSchema || json.at("type") != "engines") {
      throw DataError("recorded engines: of schema " + json.at("schema").dump() + " and type " +
                      json.at("type").dump() + ", known is " + std::to_string(kSchema) + ", \"engines\"");
    }
    source_ = json.at("source").get<std::string>();
    for (const auto& [question, engines] : json.at("engines").get_ref<const Json::object_t&>()) {
      answers_.emplace(question, engines_of(engines));
    }
  } catch (const Json::exception& error) {
    throw DataError(std::string("recorded engines: ") + error.what());
  }
}

std::vector<Engine> RecordedEngines::do_list(const EngineQuestion& question) const {
  const auto answer = answers_.find(to_string(question));
  if (answer == answers_.end()) {
    throw NoEngine(question, "its engines are not recorded");
  }
  return answer->second;
}

std::string RecordedEngines::name() const {
  return source_ + ", recorded";
}

std::string RecordedEngines::text() const {
  std::string lines;
  for (const auto& [question, engines] : answers_) {
    Json list = Json::array();
    for (const Engine& engine : engines) {
      list.push_back(json_of(engine));
    }
    lines += (lines.empty() ? "" : ",\n") + Json(question).dump() + ": " + list.dump();
  }
  return "{\"schema\": " + std::to_string(kSchema) +
         ", \"type\": \"engines\", \"source\": " + Json(source_).dump() + ", \"engines\": {\n" + lines +
         "\n}}\n";
}

}  // namespace vdnn::cuda
