#pragma once
// A layer from outside the library. It describes itself as the library's own layers do, with a recipe
// (op_catalog.h): parameters, what its forward pass saves, the ops of both passes with what they read and
// write, workspace and cost. From then on it is a layer like any other: its feature maps are offloaded, its
// operands checked, its parameters updated and written to checkpoints. On a simulated device the description
// is all there is; run() is never called.
//
//   class Square : public CustomLayer { ... };
//   x = net.custom("square", {x}, std::make_shared<Square>());
//
// Tensors are fp32 and lie densely, channels last, parameters too. With fp16 feature maps elsewhere, dY is
// that of a scaled loss (LossScaling): gradients have to be linear in it. run() may touch what its op
// declares and nothing else: SessionOptions::check_accesses turns anything else into an error that names the
// op.

#include <cstdint>
#include <span>
#include <string>

#include "vdnn/op_catalog.h"
#include "vdnn/op_operands.h"

namespace vdnn {

struct CustomQuestion {
  std::span<const TensorType> inputs;
  TensorType output;
  // Whose memory and streams run() will be given: "cpu", "cuda"; "sim": a simulated GPU, which never calls
  // it.
  std::string device;
  int threads = 1;  // of `cpu`: what run() may use
  Mode mode = Mode::kTraining;
};

struct CustomLaunch {
  Direction direction = Direction::kForward;
  std::uint32_t position = 0;  // of the op in LayerRecipe::forward (kForward) or ::backward
  std::uint32_t algorithm = 0;
  std::span<const TensorType> inputs;  // of the layer
  TensorType output;
  OpOperands operands;  // in the order of the recipe
  StepScalars scalars;
  void* native_stream = nullptr;  // what work is to be submitted to: a cudaStream_t; null on cpu
  int threads = 1;
};

// Immutable once in a network. describe() and run() may be called from any thread, run() for different
// executors at once.
class CustomLayer {
 public:
  virtual ~CustomLayer() = default;

  // What it is called in errors and reports.
  virtual std::string kind() const = 0;
  // The type of its feature map. Throws InvalidArgument for inputs that it cannot take.
  virtual TensorType output(std::span<const TensorType> inputs) const = 0;
  // For inference without saved values and without a backward pass, but with the same parameters. Parameters
  // with storage_bytes 0 are stored densely. Throws InvalidArgument for a device that it has no
  // code for.
  virtual LayerRecipe describe(const CustomQuestion& question) const = 0;
  // Runs one op: on cpu to the end, on cuda by submitting it to the stream. What it throws surfaces as a
  // device error at the next wait.
  virtual void run(const CustomLaunch& launch) const = 0;
};

}  // namespace vdnn
