#pragma once
// Who says which engines a GPU has for a convolution: cuDNN itself (convolution_engines.h), or what it said
// once and was written down (recorded_engines.h). Both answer the same question alike.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "src/ops/convolution.h"
#include "src/ops/cuda/engine_choice.h"
#include "vdnn/error.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

// One pass of a convolution over NHWC (NDHWC) feature maps and KRSC filters. `elements` is the type of X, Y,
// the filter and their gradients; sums are fp32 (of integers, int32).
struct EngineQuestion {
  ops::Convolution convolution;
  Direction direction = Direction::kForward;  // or one of the gradients
  DataType elements = DataType::kF32;
};

// Everything that the answer depends on, as texts: different questions, different texts.
struct QuestionTexts {
  std::string convolution;  // "batch 64, 3x16x16 to ..."
  std::string pass;         // "data gradient"
  std::string elements;     // "bf16"
  friend auto operator<=>(const QuestionTexts&, const QuestionTexts&) = default;
};
QuestionTexts texts_of(const EngineQuestion& question);
// In one line.
std::string to_string(const EngineQuestion& question);

// There is no engine for the question, or none is known. Another source may have one: a network is not wrong
// for that, so this is no InvalidArgument, to which lowering adds the layer's name.
class NoEngine : public Error {
 public:
  NoEngine(const EngineQuestion& question, const std::string& reason)
      : Error(to_string(question) + ": " + reason) {}
};

// Of one device. May be asked from one thread at a time.
class EngineSource {
 public:
  virtual ~EngineSource() = default;

  // What the library takes to be fastest first, without those that are not to be trusted
  // (engine_refusals.h); at least one. The same question has the same answer. Throws NoEngine.
  std::vector<Engine> list(const EngineQuestion& question) const;
  // Whose engines they are: "cudnn 9.19.0".
  virtual std::string name() const = 0;

 protected:
  virtual std::vector<Engine> do_list(const EngineQuestion& question) const = 0;
};

}  // namespace vdnn::cuda
