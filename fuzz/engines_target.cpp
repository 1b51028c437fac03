// Recorded engines of convolutions (src/ops/cuda/recorded_engines.cpp).

#include <array>

#include "fuzz/target.h"
#include "src/ops/cuda/recorded_engines.h"

namespace vdnn::fuzz {

namespace {

using cuda::Engine;
using cuda::NumericalNote;
using cuda::RecordedEngines;

cuda::EngineQuestion question(std::int64_t batch) {
  return {.convolution = {.batch = batch,
                          .input_channels = 3,
                          .output_channels = 8,
                          .input = {16, 16},
                          .output = {8, 8},
                          .kernel = {3, 3},
                          .stride = {2, 2},
                          .padding = {1, 1},
                          .dilation = {}}};
}

class Source final : public cuda::EngineSource {
 public:
  std::string name() const override { return "cudnn 9.9.0"; }

 private:
  std::vector<Engine> do_list(const cuda::EngineQuestion&) const override {
    return {{.name = "eng1_k2=3",
             .workspace_bytes = std::uint64_t{1} << 40U,
             .notes = {NumericalNote::kTensorCore, NumericalNote::kUnknown}},
            {.name = "eng0", .workspace_bytes = 0, .notes = {}}};
  }
};

}  // namespace

bool run_engines(Input input) {
  const auto recorded = attempt<DataError>([&] { return RecordedEngines(to_text(input)); });
  if (!recorded) {
    return false;
  }
  const std::string text = recorded->text();
  const RecordedEngines again(text);
  require(again.text() == text, "rewritten records have the same text");
  require(again.name() == recorded->name(), "rewritten records have the same source");
  const auto list = attempt<cuda::NoEngine>([&] { return recorded->list(question(1)); });
  require(list == attempt<cuda::NoEngine>([&] { return again.list(question(1)); }),
          "rewritten records have the same engines");
  return true;
}

std::vector<Seed> engines_seeds() {
  const auto seed = [](const std::string& name, std::span<const cuda::EngineQuestion> questions) {
    return Seed{.name = name, .bytes = to_bytes(RecordedEngines(Source(), questions).text())};
  };
  return {seed("two", std::array{question(1), question(2)}), seed("none", {})};
}

}  // namespace vdnn::fuzz
