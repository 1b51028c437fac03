#include "src/ops/cuda/engine_refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/cuda_catalog.h"
#include "src/ops/cuda/recorded_engines.h"
#include "tests/ops/cuda/listed_engines.h"

namespace vdnn::cuda::engine_refusals_test {
namespace {

using enum NumericalNote;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

EngineQuestion plane(DataType elements = DataType::kBf16) {
  return plane_question(3, elements);
}

EngineQuestion volume(DataType elements = DataType::kBf16) {
  EngineQuestion question = plane(elements);
  ops::Convolution& c = question.convolution;
  for (Dims* extents : {&c.input, &c.output, &c.kernel, &c.stride, &c.padding}) {
    extents->push_back(extents->back());
  }
  return question;
}

// The convolution of pytorch#95024: maps of 64 channels with more than 2^31 elements.
EngineQuestion huge() {
  EngineQuestion question = volume(DataType::kF16);
  ops::Convolution& c = question.convolution;
  c.input_channels = 64;
  c.output_channels = 32;
  c.input = c.output = {362, 370, 251};
  return question;
}

const std::vector<Engine> kEngines{{.name = "eng1_k2=3", .workspace_bytes = 10, .notes = {kTensorCore}},
                                   {.name = "eng12", .workspace_bytes = 0, .notes = {}}};

std::vector<std::string> names(const std::string& source, const EngineQuestion& question,
                               const std::vector<Engine>& engines = kEngines) {
  return names_of(ListedEngines(source, engines), question);
}

TEST(EngineRefusals, VersionsAreThoseOfTheSource) {
  EXPECT_EQ(cudnn_version_of("cudnn 9.19.0"), (CudnnVersion{9, 19, 0}));
  EXPECT_EQ(cudnn_version_of("cudnn 9.8.1, recorded"), (CudnnVersion{9, 8, 1}));
  for (const char* other : {"", "cudnn", "cudnn nine", "cudnn 9.8", "cudnn -9.8.0", "library 9.8.0"}) {
    EXPECT_EQ(cudnn_version_of(other), std::nullopt) << other;
  }
}

// cuDNN 9.8 to 9.10 computed bf16 convolutions in 3-D wrongly (pytorch#163539).
TEST(KnownDefects, EnginesThatComputeVolumesInHalfPrecisionWronglyAreNotListed) {
  for (const DataType half : {DataType::kBf16, DataType::kF16}) {
    for (const char* version : {"cudnn 9.8.0", "cudnn 9.10.2", "cudnn 9.14.9", "cudnn 9.9.0, recorded"}) {
      EXPECT_THAT([&] { names(version, volume(half)); },
                  ThrowsMessage<NoEngine>(AllOf(HasSubstr("refuses all engines of " + std::string(version)),
                                                HasSubstr("pytorch#163539"))));
    }
    EXPECT_EQ(names("cudnn 9.7.1", volume(half)).size(), 2U);
    EXPECT_EQ(names("cudnn 9.15.0", volume(half)).size(), 2U);
    EXPECT_EQ(names("cudnn 9.9.0", plane(half)).size(), 2U);
    EXPECT_EQ(names("another library", volume(half)).size(), 2U);
    EngineQuestion pointwise = volume(half);
    pointwise.convolution.kernel = {1, 1, 1};
    EXPECT_EQ(names("cudnn 9.9.0", pointwise).size(), 2U);
  }
  EXPECT_EQ(names("cudnn 9.9.0", volume(DataType::kF32)).size(), 2U);
}

// From cuDNN 9.10.2 to 9.15 a kernel computed volumes in TF32 wrongly (pytorch#167024).
TEST(KnownDefects, EnginesThatComputeVolumesInTf32WronglyAreNotListed) {
  EXPECT_THAT(names("cudnn 9.10.2", volume(DataType::kF32)), ElementsAre("eng12"));
  EXPECT_THAT(names("cudnn 9.15.1", volume(DataType::kF32)), ElementsAre("eng12"));
  EXPECT_EQ(names("cudnn 9.10.1", volume(DataType::kF32)).size(), 2U);
  EXPECT_EQ(names("cudnn 9.16.0", volume(DataType::kF32)).size(), 2U);
  EXPECT_EQ(names("cudnn 9.10.2", plane(DataType::kF32)).size(), 2U);
}

// Above 2^31 elements cuDNN's first choice needed 108 GiB of workspace for operands of 6 GB (pytorch#95024).
TEST(KnownDefects, WorkspaceBeyondAllOperandsIsRefusedAbove2To31Elements) {
  constexpr std::uint64_t kOperands = 2 * (std::uint64_t{96} * 362 * 370 * 251 + std::uint64_t{32} * 64 * 27);
  const std::vector<Engine> engines{{.name = "much", .workspace_bytes = std::uint64_t{108} << 30U},
                                    {.name = "more", .workspace_bytes = kOperands + 1},
                                    {.name = "as much", .workspace_bytes = kOperands}};
  EXPECT_THAT(names("cudnn 9.19.0", huge(), engines), ElementsAre("as much"));
  EngineQuestion smaller = huge();
  smaller.convolution.input[0] = 361;  // 2^31 - 1 elements at most
  EXPECT_EQ(names("cudnn 9.19.0", smaller, engines).size(), 3U);
}

// If a single condition does not hold, the refusal does not apply.
TEST(EngineRefusals, HoldWhereAllConditionsDo) {
  const EngineRefusal all{.why = "a test",
                          .source = "here",
                          .first = {9, 1, 0},
                          .last = {9, 2, 0},
                          .elements = {DataType::kBf16},
                          .directions = {Direction::kForward},
                          .dimensions_of_space = 3,
                          .engine = "eng1",
                          .rounding_inputs = true,
                          .wide_windows = true,
                          .tensor_elements = 1728,
                          .workspace_beyond_operands = true};
  const CudnnVersion version{9, 1, 5};
  const Engine engine{.name = "eng1_k2=3", .workspace_bytes = 1 << 20, .notes = {kTensorCore}};
  EXPECT_TRUE(refuses(all, version, volume(), engine));
  EXPECT_FALSE(refuses(all, {9, 0, 9}, volume(), engine));
  EXPECT_FALSE(refuses(all, {9, 2, 1}, volume(), engine));
  using Change = std::function<void(EngineQuestion&, Engine&)>;
  const std::vector<Change> changes{
      [](EngineQuestion& question, Engine&) { question.elements = DataType::kF32; },
      [](EngineQuestion& question, Engine&) { question.direction = Direction::kBackwardData; },
      [](EngineQuestion& question, Engine&) { question = plane(); },
      [](EngineQuestion&, Engine& other) { other.name = "eng12"; },
      [](EngineQuestion&, Engine& other) { other.notes.clear(); },
      [](EngineQuestion& question, Engine&) {
        question.convolution.kernel = {1, 1, 1};
      },
      [](EngineQuestion& question, Engine&) { question.convolution.input_channels = 7; },
      [](EngineQuestion&, Engine& other) { other.workspace_bytes = 3800; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    EngineQuestion question = volume();
    Engine other = engine;
    changes[i](question, other);
    EXPECT_FALSE(refuses(all, version, question, other)) << "change " << i;
  }
}

// The table also applies to records that are older than its entries.
TEST(EngineRefusals, ApplyToRecords) {
  const std::array questions{volume(DataType::kF32), plane(DataType::kF32)};
  std::string text = RecordedEngines(ListedEngines("cudnn 9.19.0", kEngines), questions).text();
  text.replace(text.find("9.19.0"), 6, "9.15.0");
  const RecordedEngines recorded(text);
  EXPECT_EQ(recorded.list(questions[0]), (std::vector<Engine>{kEngines[1]}));
  EXPECT_EQ(recorded.list(questions[1]), kEngines);
}

// No op has a refused engine among its algorithms, whatever the limits.
TEST(EngineRefusals, AreNeverChosen) {
  const std::vector<Engine> engines{{.name = "eng9", .workspace_bytes = std::uint64_t{108} << 30U},
                                    {.name = "eng7", .workspace_bytes = 0}};
  const CudaCatalog catalog(std::make_shared<ListedEngines>("cudnn 9.19.0", engines));
  const ConvolutionSpec spec{.filters = 32, .kernel = {3, 3, 3}, .stride = {1, 1, 1}, .padding = {1, 1, 1}};
  const auto algorithms = [&](std::int64_t depth) {
    const TensorType x{.dims = {1, 64, depth, 370, 251}};
    const TensorType y{.dims = {1, 32, depth, 370, 251}};
    return catalog.recipe(spec, std::array{x}, std::array{y}, Mode::kInference).forward.at(0).algorithms;
  };
  EXPECT_EQ(algorithms(361).size(), 2U);
  ASSERT_EQ(algorithms(362).size(), 1U);
  EXPECT_EQ(algorithms(362)[0].name, "eng7");
}

}  // namespace
}  // namespace vdnn::cuda::engine_refusals_test
