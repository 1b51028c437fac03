#pragma once
// A source of engines that a test lists itself.

#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Returns the same engines for every question.
class ListedEngines final : public EngineSource {
 public:
  ListedEngines(std::string name, std::vector<Engine> engines)
      : name_(std::move(name)), engines_(std::move(engines)) {}
  std::string name() const override { return name_; }

 private:
  std::vector<Engine> do_list(const EngineQuestion&) const override { return engines_; }

  std::string name_;
  std::vector<Engine> engines_;
};

// A square window over a map of 4 x 4.
inline EngineQuestion plane_question(std::int64_t window, DataType elements) {
  return {.convolution = {.batch = 1,
                          .input_channels = 8,
                          .output_channels = 8,
                          .input = {4, 4},
                          .output = {4, 4},
                          .kernel = {window, window},
                          .stride = {1, 1},
                          .padding = {window / 2, window / 2},
                          .dilation = {}},
          .direction = Direction::kForward,
          .elements = elements};
}

inline std::vector<std::string> names_of(const EngineSource& source, const EngineQuestion& question) {
  std::vector<std::string> names;
  for (const Engine& engine : source.list(question)) {
    names.push_back(engine.name);
  }
  return names;
}

}  // namespace vdnn::cuda
