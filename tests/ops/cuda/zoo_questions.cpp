#include "tests/ops/cuda/zoo_questions.h"

#include <algorithm>
#include <array>
#include <string>
#include <variant>

#include "vdnn/zoo.h"

namespace vdnn::cuda {

namespace {

void add_once(const ops::Convolution& convolution, std::vector<ops::Convolution>& found) {
  if (std::ranges::find(found, convolution) == found.end()) {
    found.push_back(convolution);
  }
}

void add_convolutions(const Network& network, std::vector<ops::Convolution>& found) {
  for (const Layer& layer : network.layers()) {
    const TensorType& x = network.type(layer.inputs[0]);
    const TensorType& y = network.type(layer.output);
    if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
      add_once(ops::convolution_of(*convolution, x, y), found);
    } else if (const auto* transposed = std::get_if<TransposedConvolutionSpec>(&layer.spec)) {
      add_once(ops::convolution_of(*transposed, x, y), found);
    }
  }
}

}  // namespace

std::vector<EngineQuestion> zoo_questions(std::int64_t batch, std::span<const DataType> elements) {
  std::vector<ops::Convolution> convolutions;
  for (const std::string& model : model_names()) {
    add_convolutions(make_model({.model = model, .input = {}, .classes = 0, .batch = batch}), convolutions);
  }
  std::vector<EngineQuestion> questions;
  for (const ops::Convolution& convolution : convolutions) {
    for (const Direction direction :
         {Direction::kForward, Direction::kBackwardData, Direction::kBackwardFilter}) {
      for (const DataType type : elements) {
        questions.push_back({convolution, direction, type});
      }
    }
  }
  return questions;
}

std::vector<EngineQuestion> recorded_questions() {
  constexpr std::array kElements{DataType::kF32, DataType::kBf16, DataType::kF16};
  return zoo_questions(ModelOptions{}.batch, kElements);
}

}  // namespace vdnn::cuda
