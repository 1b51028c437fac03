#include "src/ops/cuda/recorded_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/known_gpus.h"
#include "src/ops/product_names.h"
#include "tests/ops/cuda/choose_engine.h"
#include "tests/ops/cuda/zoo_questions.h"
#include "tests/report/json_schema.h"
#include "vdnn/sim_device.h"

namespace vdnn::cuda::recorded_engines_test {
namespace {

using enum NumericalNote;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

ops::Convolution convolution(std::int64_t batch) {
  return {.batch = batch,
          .input_channels = 3,
          .output_channels = 8,
          .input = {16, 16},
          .output = {8, 8},
          .kernel = {3, 3},
          .stride = {2, 2},
          .padding = {1, 1},
          .dilation = {}};
}

EngineQuestion question(std::int64_t batch) {
  return {convolution(batch), Direction::kForward, DataType::kF32};
}

// Lists one engine per note, with a workspace proportional to the batch.
class Source final : public EngineSource {
 public:
  std::vector<Engine> do_list(const EngineQuestion& asked) const override {
    std::vector<Engine> engines;
    std::uint64_t bytes = std::uint64_t{1} << 40;
    for (const NumericalNote note : {kTensorCore, kDownConvertInputs, kReducedPrecisionReduction, kFft,
                                     kNondeterministic, kWinograd, kStrictNanPropagation, kUnknown}) {
      bytes /= 2;
      engines.push_back({.name = "eng" + std::to_string(engines.size()),
                         .workspace_bytes = bytes + static_cast<std::uint64_t>(asked.convolution.batch),
                         .notes = {note}});
    }
    engines.push_back({.name = "eng without notes", .workspace_bytes = 0});
    engines.push_back({.name = "never chosen", .workspace_bytes = 1});
    return engines;
  }
  std::string name() const override { return "library 1.2"; }
};

const std::array kAsked{question(1), question(2)};

TEST(RecordedEngines, AnswerWhatTheSourceSaid) {
  const RecordedEngines recorded(Source(), kAsked);
  for (const EngineQuestion& asked : kAsked) {
    EXPECT_EQ(recorded.list(asked), choosable(Source().list(asked)));
  }
  EXPECT_EQ(recorded.name(), "library 1.2, recorded");
}

TEST(RecordedEngines, ComeBackFromTheirText) {
  const std::string text = RecordedEngines(Source(), kAsked).text();
  const RecordedEngines read(text);
  for (const EngineQuestion& asked : kAsked) {
    EXPECT_EQ(read.list(asked), choosable(Source().list(asked)));
  }
  EXPECT_EQ(read.text(), text);
  EXPECT_EQ(read.name(), "library 1.2, recorded");
}

// Most convolutions have the same engines in bf16 and fp16.
TEST(RecordedEngines, WriteAnAnswerThatTypesShareOnce) {
  EngineQuestion narrow = question(1);
  const auto text_with = [&](DataType elements) {
    narrow.elements = elements;
    return RecordedEngines(Source(), std::array{question(1), narrow}).text();
  };
  const std::string text = text_with(DataType::kBf16);
  EXPECT_THAT(text, HasSubstr("\"bf16 fp32\":[["));
  EXPECT_EQ(text.size(), RecordedEngines(Source(), std::array{question(1)}).text().size() + 5);
  narrow.elements = DataType::kBf16;
  EXPECT_EQ(RecordedEngines(text).list(narrow), choosable(Source().list(narrow)));
  EXPECT_EQ(RecordedEngines(text).text(), text);
  narrow.elements = DataType::kF16;
  EXPECT_THROW(RecordedEngines(text).list(narrow), NoEngine);
}

TEST(RecordedEngines, WriteDifferentAnswersSeparately) {
  // Lists other engines for four-byte elements than for two-byte elements.
  class OfTypes final : public EngineSource {
   public:
    std::vector<Engine> do_list(const EngineQuestion& asked) const override {
      return {{.name = "eng1", .workspace_bytes = size_of(asked.elements)}, {.name = "eng0"}};
    }
    std::string name() const override { return "library 1.2"; }
  };
  std::vector<EngineQuestion> asked(3, question(1));
  asked[1].elements = DataType::kBf16;
  asked[2].elements = DataType::kF16;
  const RecordedEngines recorded(OfTypes(), asked);
  EXPECT_THAT(recorded.text(),
              AllOf(HasSubstr("\"bf16 fp16\":[[1,2],[0,0]]"), HasSubstr("\"fp32\":[[1,4],[0,0]]")));
  for (const EngineQuestion& each : asked) {
    EXPECT_EQ(RecordedEngines(recorded.text()).list(each), OfTypes().list(each));
  }
}

TEST(RecordedEngines, ANoteThatALaterVersionHasIsUnknown) {
  const RecordedEngines recorded(Source(), kAsked);
  std::string text = recorded.text();
  text.replace(text.find("winograd"), std::string("winograd").size(), "made up");
  EXPECT_EQ(RecordedEngines(text).list(question(1)).at(5).notes, std::vector{kUnknown});
}

TEST(RecordedEngines, WhatWasNotAskedIsRefused) {
  const RecordedEngines recorded(Source(), kAsked);
  EXPECT_THAT([&] { recorded.list(question(3)); },
              ThrowsMessage<NoEngine>(AllOf(HasSubstr("batch 3"), HasSubstr("not recorded"))));
  EngineQuestion other = question(1);
  other.direction = Direction::kBackwardData;
  EXPECT_THROW(recorded.list(other), NoEngine);
}

TEST(RecordedEngines, WhatIsNoRecordIsRefused) {
  const std::string text = RecordedEngines(Source(), kAsked).text();
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string changed = text;
    return changed.replace(changed.find(old), old.size(), now);
  };
  for (const std::string& damaged :
       {std::string(), std::string("[]"), text.substr(0, text.size() / 2),
        with("\"schema\": 2", "\"schema\": 1"), with("\"type\": \"engines\"", "\"type\": \"step\""),
        with("\"source\"", "\"sauce\""), with("\"engines\": [", "\"motors\": ["),
        with("\"convolutions\": {", "\"questions\": {"), with("\"eng0\"", "7"),
        with("[\"eng0\"", "[[\"eng0\""), with("\"fp32\":[[", "\"fp32\":[[[[["), with("\"fft\"", "0"),
        with("[\"eng without notes\"]", "[]"),
        // An engine that is not in the table, and a repeated answer.
        with("\"fp32\":[[1,", "\"fp32\":[[10,"), with("\"fp32\":", "\"fp32 fp32\":"),
        // Regression: a negative count was read as one near 2^64, a fraction as a whole number, and an object
        // as an array.
        with("\"fp32\":[[1,", "\"fp32\":[[1,-"), with("\"fp32\":[[1,", "\"fp32\":[[1,0."),
        with("\"fp32\":[[1,", "\"fp32\":[[-1,"), with("[\"eng3\",\"fft\"]", "{\"a\": \"fft\"}")}) {
    EXPECT_THROW(RecordedEngines{damaged}, DataError) << damaged.substr(0, 60);
  }
}

TEST(RecordedEngines, ObeyTheirSchema) {
  const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/engines.schema.json");
  const auto errors = [&](std::string_view text) {
    return testing::SchemaCheck::errors(schema, testing::Json::parse(text));
  };
  EXPECT_THAT(errors(RecordedEngines(Source(), kAsked).text()), IsEmpty());
  for (const KnownGpu& gpu : known_gpus()) {
    EXPECT_THAT(errors(gpu.recorded_engines), IsEmpty()) << gpu.name;
  }
}

TEST(EngineQuestion, TextsDifferWhereQuestionsDo) {
  std::vector<EngineQuestion> questions(14, question(1));
  questions[1].direction = Direction::kBackwardFilter;
  questions[2].elements = DataType::kBf16;
  questions[3].convolution.batch = 2;
  questions[4].convolution.input_channels = 4;
  questions[5].convolution.output_channels = 4;
  questions[6].convolution.input = {15, 16};
  questions[7].convolution.output = {7, 8};
  questions[8].convolution.kernel = {1, 3};
  questions[9].convolution.stride = {1, 2};
  questions[10].convolution.padding = {0, 1};
  questions[11].convolution.dilation = {2, 1};
  questions[12].convolution.groups = 2;
  questions[13].direction = Direction::kBackwardData;
  std::set<std::string> texts;
  for (const EngineQuestion& asked : questions) {
    texts.insert(to_string(asked));
  }
  EXPECT_EQ(texts.size(), questions.size());
  EngineQuestion explicit_ones = question(1);
  explicit_ones.convolution.dilation = {1, 1};
  EXPECT_EQ(to_string(explicit_ones), to_string(question(1)));
}

// Profiles specify memory in whole MiB.
TEST(KnownGpus, HaveTheMemoryThatTheirSimulationHas) {
  constexpr std::uint64_t kMiB = 1 << 20;
  for (const KnownGpu& gpu : known_gpus()) {
    const auto properties = testing::Json::parse(gpu.cudnn_properties);
    EXPECT_EQ(properties.at("totalGlobalMem").get<std::uint64_t>() / kMiB,
              sim_profile(std::string(gpu.name)).memory_bytes / kMiB)
        << gpu.name;
  }
}

// Records cover every element type in which networks train, with at least one engine each.
TEST(KnownGpus, HaveRecordsOfTheWholeZoo) {
  for (const KnownGpu& gpu : known_gpus()) {
    const RecordedEngines recorded(gpu.recorded_engines);
    EXPECT_TRUE(recorded.name().starts_with("cudnn 9.")) << recorded.name();
    std::set<DataType> types;
    for (const EngineQuestion& asked : recorded_questions()) {
      types.insert(asked.elements);
      EXPECT_TRUE(
          choose_engine(recorded.list(asked), training_limits(ops::product_precision(asked.elements))))
          << gpu.name << ": " << to_string(asked);
    }
    EXPECT_EQ(types, (std::set{DataType::kF32, DataType::kBf16, DataType::kF16}));
  }
}

// Checks the size of the records within the library. Since shared answers are written once, three types need
// less than fp32 alone would if every answer were written out.
TEST(KnownGpus, HaveRecordsThatTakeLessThanAMegabyte) {
  std::size_t bytes = 0;
  for (const KnownGpu& gpu : known_gpus()) {
    bytes += gpu.recorded_engines.size();
  }
  EXPECT_LT(bytes, 1'000'000U);
}

}  // namespace
}  // namespace vdnn::cuda::recorded_engines_test
