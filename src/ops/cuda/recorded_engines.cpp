#include "src/ops/cuda/recorded_engines.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/base/json_text.h"

namespace vdnn::cuda {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 2;
constexpr int kDeepest = 6;  // nesting depth of an engine in an answer

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

// The part of an engine that several answers have in common: its name, then its notes.
using Kind = std::vector<std::string>;

Kind kind_of(const Engine& engine) {
  Kind kind{engine.name};
  std::ranges::transform(engine.notes, std::back_inserter(kind), text_of);
  return kind;
}

Engine engine_of(const Kind& kind, std::uint64_t workspace_bytes) {
  if (kind.empty()) {
    throw DataError("recorded engines: an engine without a name");
  }
  Engine engine{.name = kind[0], .workspace_bytes = workspace_bytes};
  std::transform(kind.begin() + 1, kind.end(), std::back_inserter(engine.notes), note_of);
  return engine;
}

using Answers = std::map<QuestionTexts, std::vector<Engine>>;
using Numbers = std::map<Kind, std::size_t>;

// Numbers the kinds in their order.
Numbers numbers_of(const Answers& answers) {
  Numbers numbers;
  for (const auto& [question, engines] : answers) {
    for (const Engine& engine : engines) {
      numbers.emplace(kind_of(engine), 0);
    }
  }
  std::size_t next = 0;
  for (auto& [kind, number] : numbers) {
    number = next++;
  }
  return numbers;
}

Json json_of(const std::vector<Engine>& engines, const Numbers& numbers) {
  Json list = Json::array();
  for (const Engine& engine : engines) {
    list.push_back(Json::array({numbers.at(kind_of(engine)), engine.workspace_bytes}));
  }
  return list;
}

// One answer, and the types for which it holds.
struct SharedAnswer {
  Json engines;
  std::string elements;
};

void share(const std::string& elements, Json engines, std::vector<SharedAnswer>& answers) {
  const auto same = std::ranges::find(answers, engines, &SharedAnswer::engines);
  if (same == answers.end()) {
    answers.push_back({std::move(engines), elements});
  } else {
    same->elements += " " + elements;
  }
}

// The answers for one convolution, by pass and by types.
Json json_of(Answers::const_iterator begin, Answers::const_iterator end, const Numbers& numbers) {
  std::map<std::string, std::vector<SharedAnswer>> passes;
  for (auto answer = begin; answer != end; ++answer) {
    share(answer->first.elements, json_of(answer->second, numbers), passes[answer->first.pass]);
  }
  Json json = Json::object();
  for (const auto& [pass, answers] : passes) {
    for (const SharedAnswer& answer : answers) {
      json[pass][answer.elements] = answer.engines;
    }
  }
  return json;
}

// One item per line.
template <class Items, class TextOf>
std::string lines_of(const Items& items, const TextOf& text_of_item) {
  std::string lines;
  for (const auto& item : items) {
    lines += (lines.empty() ? "" : ",\n") + text_of_item(item);
  }
  return lines;
}

std::vector<Engine> engines_of(const Json& json, const std::vector<Kind>& kinds) {
  std::vector<Engine> engines;
  for (const Json& pair : json.get_ref<const Json::array_t&>()) {
    const auto number = pair.at(0).get_ref<const Json::number_unsigned_t&>();
    if (number >= kinds.size() || pair.size() != 2) {
      throw DataError("recorded engines: " + pair.dump() + " is not one of " + std::to_string(kinds.size()) +
                      " engines and its workspace");
    }
    engines.push_back(engine_of(kinds[number], pair.at(1).get_ref<const Json::number_unsigned_t&>()));
  }
  return engines;
}

void add_answer(const std::string& convolution, const std::string& pass, const std::string& types,
                const std::vector<Engine>& engines, Answers& answers) {
  std::istringstream each(types);
  for (std::string elements; each >> elements;) {
    if (!answers.emplace(QuestionTexts{convolution, pass, elements}, engines).second) {
      throw DataError("recorded engines: two answers for " + elements + ", " + pass + ", " + convolution);
    }
  }
}

Answers answers_of(const Json& json) {
  std::vector<Kind> kinds;
  for (const Json& kind : json.at("engines").get_ref<const Json::array_t&>()) {
    kinds.push_back(kind.get<Kind>());
  }
  Answers answers;
  for (const auto& [convolution, passes] : json.at("convolutions").get_ref<const Json::object_t&>()) {
    for (const auto& [pass, of_types] : passes.get_ref<const Json::object_t&>()) {
      for (const auto& [types, engines] : of_types.get_ref<const Json::object_t&>()) {
        add_answer(convolution, pass, types, engines_of(engines, kinds), answers);
      }
    }
  }
  return answers;
}

}  // namespace

RecordedEngines::RecordedEngines(const EngineSource& source, std::span<const EngineQuestion> questions)
    : source_(source.name()) {
  for (const EngineQuestion& question : questions) {
    answers_.emplace(texts_of(question), choosable(source.list(question)));
  }
}

RecordedEngines::RecordedEngines(std::string_view text) {
  const auto json = parse_json_text<Json>(text, kDeepest);
  try {
    if (json.at("schema") != kSchema || json.at("type") != "engines") {
      throw DataError("recorded engines: schema " + json.at("schema").dump() + " and type " +
                      json.at("type").dump() + " instead of " + std::to_string(kSchema) + " and \"engines\"");
    }
    source_ = json.at("source").get<std::string>();
    answers_ = answers_of(json);
  } catch (const Json::exception& error) {
    throw DataError(std::string("recorded engines: ") + error.what());
  }
}

std::vector<Engine> RecordedEngines::do_list(const EngineQuestion& question) const {
  const auto answer = answers_.find(texts_of(question));
  if (answer == answers_.end()) {
    throw NoEngine(question, "its engines are not recorded");
  }
  return answer->second;
}

std::string RecordedEngines::name() const {
  return source_ + ", recorded";
}

std::string RecordedEngines::text() const {
  const Numbers numbers = numbers_of(answers_);
  std::map<std::string, std::string> convolutions;
  for (auto begin = answers_.begin(); begin != answers_.end();) {
    const auto end = std::find_if(begin, answers_.end(), [&](const auto& answer) {
      return answer.first.convolution != begin->first.convolution;
    });
    convolutions.emplace(begin->first.convolution, json_of(begin, end, numbers).dump());
    begin = end;
  }
  return "{\"schema\": " + std::to_string(kSchema) +
         ", \"type\": \"engines\", \"source\": " + Json(source_).dump() + ", \"engines\": [\n" +
         lines_of(numbers, [](const auto& numbered) { return Json(numbered.first).dump(); }) +
         "\n], \"convolutions\": {\n" +
         lines_of(convolutions,
                  [](const auto& answers) { return Json(answers.first).dump() + ": " + answers.second; }) +
         "\n}}\n";
}

}  // namespace vdnn::cuda
