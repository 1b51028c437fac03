#include "src/ops/cuda/engine_source.h"

#include "src/ops/cuda/engine_refusals.h"

namespace vdnn::cuda {

using vdnn::to_string;  // of a shape

namespace {

const char* name_of(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackwardData:
      return "data gradient";
    case Direction::kBackwardFilter:
      return "filter gradient";
    case Direction::kUpdate:
      return "update";
  }
  return "?";
}

std::string shape(std::int64_t channels, const Dims& space) {
  return std::to_string(channels) + "x" + to_string(space);
}

}  // namespace

std::vector<Engine> EngineSource::list(const EngineQuestion& question) const {
  return trusted(question, do_list(question), name());
}

QuestionTexts texts_of(const EngineQuestion& question) {
  const ops::Convolution& c = question.convolution;
  return {.convolution = "batch " + std::to_string(c.batch) + ", " + shape(c.input_channels, c.input) +
                         " to " + shape(c.output_channels, c.output) + ", window " + to_string(c.kernel) +
                         ", stride " + to_string(c.stride) + ", padding " + to_string(c.padding) +
                         ", dilation " + to_string(ops::dilation_of(c)) + ", groups " +
                         std::to_string(c.groups),
          .pass = name_of(question.direction),
          .elements = to_string(question.elements)};
}

std::string to_string(const EngineQuestion& question) {
  const QuestionTexts texts = texts_of(question);
  return texts.elements + " convolution, " + texts.pass + ", " + texts.convolution;
}

}  // namespace vdnn::cuda
