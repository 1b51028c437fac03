#pragma once
// A source of the engines that a GPU has for a convolution: cuDNN itself (convolution_engines.h), or recorded
// answers of cuDNN (recorded_engines.h). For a recorded question, both lead to the same choice of an engine.

#include <compare>
#include <string>
#include <vector>

#include "src/ops/convolution.h"
#include "src/ops/cuda/engine_choice.h"
#include "vdnn/error.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

// One pass of a convolution over NHWC (NDHWC) feature maps and KRSC filters. `elements` is the type of X, Y,
// the filter and their gradients; sums are fp32, or int32 for integers.
struct EngineQuestion {
  ops::Convolution convolution;
  Direction direction = Direction::kForward;  // or one of the gradients
  DataType elements = DataType::kF32;
};

// A question as text: everything on which the answer depends. Different questions have different texts.
struct QuestionTexts {
  std::string convolution;  // "batch 64, 3x16x16 to ..."
  std::string pass;         // "data gradient"
  std::string elements;     // "bf16"
  friend auto operator<=>(const QuestionTexts&, const QuestionTexts&) = default;
};
QuestionTexts texts_of(const EngineQuestion& question);
// The question on one line.
std::string to_string(const EngineQuestion& question);

// No engine exists for the question, or none is known. This is not an InvalidArgument, since the network is
// valid and another source may have an engine.
class NoEngine : public Error {
 public:
  NoEngine(const EngineQuestion& question, const std::string& reason)
      : Error(to_string(question) + ": " + reason) {}
};

// The engines of one device. Call its functions from one thread at a time.
class EngineSource {
 public:
  virtual ~EngineSource() = default;

  // Returns at least one engine, in the library's order of estimated speed, without refused engines
  // (engine_refusals.h). The same question has the same answer. Throws NoEngine if there is none.
  std::vector<Engine> list(const EngineQuestion& question) const;
  // The library and its version: "cudnn 9.19.0".
  virtual std::string name() const = 0;

 protected:
  virtual std::vector<Engine> do_list(const EngineQuestion& question) const = 0;
};

}  // namespace vdnn::cuda
